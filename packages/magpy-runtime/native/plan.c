/* A code object's plan: asked for once, checked, and resolved into C structs. */
#include "capture.h"

/* Reads one number of the exception table (six bits a byte, the first byte's bit 7 marks an entry's start). */
static const unsigned char *
read_varint(const unsigned char *cursor, const unsigned char *end, int *value)
{
    int result = 0;
    while (cursor < end) {
        unsigned char byte = *cursor++;
        result = (result << 6) | (byte & 63);
        if (!(byte & 64)) {
            break;
        }
    }
    *value = result;
    return cursor;
}

/* The unit of the handler that the exception table gives for a unit, -1: none. */
int
mp_handler_of(PyCodeObject *code, int unit)
{
    PyObject *table = code->co_exceptiontable;
    const unsigned char *cursor = (const unsigned char *)PyBytes_AS_STRING(table);
    const unsigned char *end = cursor + PyBytes_GET_SIZE(table);
    while (cursor < end) {
        int start, size, target, depth_and_lasti;
        cursor = read_varint(cursor, end, &start);
        cursor = read_varint(cursor, end, &size);
        cursor = read_varint(cursor, end, &target);
        cursor = read_varint(cursor, end, &depth_and_lasti);
        if (start <= unit && unit < start + size) {
            return target;
        }
    }
    return -1;
}

/* Marks the first unit of each exception handler. Such a unit is reached only by an exception: the handler
 * expects the exception on the stack, which no ordinary jump puts there. Takes nothing. */
static void
mark_handlers(Plan *plan)
{
    PyObject *table = plan->code->co_exceptiontable;
    const unsigned char *cursor = (const unsigned char *)PyBytes_AS_STRING(table);
    const unsigned char *end = cursor + PyBytes_GET_SIZE(table);
    while (cursor < end) {
        int start, size, target, depth_and_lasti;
        cursor = read_varint(cursor, end, &start);
        cursor = read_varint(cursor, end, &size);
        cursor = read_varint(cursor, end, &target);
        cursor = read_varint(cursor, end, &depth_and_lasti);
        if (target >= 0 && target < plan->length) {
            plan->slots[target] |= SLOT_HANDLER;
        }
    }
}

/* Marks EXTENDED_ARG prefixes and RESUME; `bytes` is co_code, whose inline caches are zeros. Takes nothing. */
static void
mark_opcodes(Plan *plan, const unsigned char *bytes)
{
    int unit = 0;
    while (unit < plan->length) {
        int start = unit;
        while (unit < plan->length - 1 && bytes[2 * unit] == EXTENDED_ARG) {
            unit++;
        }
        for (int prefix = start; prefix < unit; prefix++) {
            plan->slots[prefix] |= (uint32_t)(unit - prefix) << SLOT_PREFIX_SHIFT;
        }
        if (bytes[2 * unit] == RESUME) {
            plan->slots[unit] |= SLOT_RESUME;
        }
        unit++;
    }
}

/* A Python int as a C int. Returns -1 with an exception set when it is none or too big. */
static int
as_int(PyObject *number)
{
    long value = PyLong_AsLong(number);
    if (value > INT32_MAX || value < INT32_MIN) {
        PyErr_SetString(PyExc_OverflowError, "number too big for a plan");
        return -1;
    }
    return (int)value;
}

/* Reads the plan's element for one unit (borrowed) into a new item. Returns -1 with an exception set. */
static int
add_item(Plan *plan, int unit, PyObject *element)
{
    if (element == Py_None) {
        return 0;
    }
    Py_ssize_t size = PyTuple_Check(element) ? PyTuple_GET_SIZE(element) : 0;
    if (size != 5 && size != 6) {
        PyErr_Format(PyExc_TypeError,
                     "plan of %R, code unit %d: expected None or (before, after, n_in, n_out, arg[, fallthrough])",
                     plan->code, unit);
        return -1;
    }
    PyObject *before = PyTuple_GET_ITEM(element, 0), *after = PyTuple_GET_ITEM(element, 1);
    int n_in = as_int(PyTuple_GET_ITEM(element, 2));
    int n_out = n_in == -1 && PyErr_Occurred() ? -1 : as_int(PyTuple_GET_ITEM(element, 3));
    int fallthrough = -1;
    if (!PyErr_Occurred() && size == 6 && PyTuple_GET_ITEM(element, 5) != Py_None) {
        fallthrough = as_int(PyTuple_GET_ITEM(element, 5));
    }
    if (PyErr_Occurred()) {
        return -1;
    }
    if (n_in < 0 || n_out < 0 || fallthrough < -1 || fallthrough >= plan->length) {
        PyErr_Format(PyExc_ValueError, "plan of %R, code unit %d: number out of range", plan->code, unit);
        return -1;
    }
    if ((before != Py_None && !PyCallable_Check(before)) || (after != Py_None && !PyCallable_Check(after))) {
        PyErr_Format(PyExc_TypeError, "plan of %R, code unit %d: callbacks must be callable or None",
                     plan->code, unit);
        return -1;
    }
    if (before == Py_None && after == Py_None) {
        return 0;
    }
    PlanItem *item = &plan->items[plan->item_count++];
    item->before = before == Py_None ? NULL : Py_NewRef(before);
    item->after = after == Py_None ? NULL : Py_NewRef(after);
    item->arg = Py_NewRef(PyTuple_GET_ITEM(element, 4));
    item->n_in = n_in;
    item->n_out = n_out;
    item->fallthrough = fallthrough < 0 ? -1 : fallthrough + (int)SLOT_PREFIX(plan->slots[fallthrough]);
    plan->slots[unit] |= (uint32_t)plan->item_count;
    return 0;
}

#if MP_USES_MONITORING
/* magpy_runtime._stackdepth.stack_depths (owned), once a recorder ran. */
static PyObject *stack_depths_function = NULL;

/* Finds stack_depths before the program runs: importing it later would ask the program's frame for `__import__`.
 * Returns -1 with an exception set. */
int
mp_plans_prepare(void)
{
    if (stack_depths_function == NULL) {
        PyObject *module = PyImport_ImportModule("magpy_runtime._stackdepth");
        stack_depths_function = module != NULL ? PyObject_GetAttrString(module, "stack_depths") : NULL;
        Py_XDECREF(module);
    }
    return stack_depths_function == NULL ? -1 : 0;
}

/* Asks magpy_runtime._stackdepth for the depths before each unit. Returns -1 with an exception set. */
static int
compute_depths(Plan *plan)
{
    PyObject *depths = PyObject_CallOneArg(stack_depths_function, (PyObject *)plan->code);
    if (depths == NULL) {
        return -1;
    }
    Py_buffer view;
    int status = PyObject_GetBuffer(depths, &view, PyBUF_SIMPLE);
    Py_DECREF(depths);
    if (status < 0) {
        return -1;
    }
    if (view.len != (Py_ssize_t)(plan->length * sizeof(int32_t))) {
        PyErr_SetString(PyExc_ValueError, "stack_depths must give one 32-bit number a code unit");
        status = -1;
    }
    else if ((plan->depths = PyMem_Malloc((size_t)view.len + 1)) == NULL) {
        PyErr_NoMemory();
        status = -1;
    }
    else {
        memcpy(plan->depths, view.buf, (size_t)view.len);
    }
    PyBuffer_Release(&view);
    return status;
}
#endif

/* Fills in a plan from the list (borrowed) that the caller's plan_for gave. Returns -1 with an exception set. */
static int
read_list(Plan *plan, PyObject *list)
{
    PyObject *bytecode = PyCode_GetCode(plan->code);
    if (bytecode == NULL) {
        return -1;
    }
    plan->length = (int)(PyBytes_GET_SIZE(bytecode) / 2);
    if (!PyList_Check(list) || PyList_GET_SIZE(list) != plan->length) {
        PyErr_Format(PyExc_TypeError, "plan of %R: expected None or a list with %d elements", plan->code, plan->length);
        Py_DECREF(bytecode);
        return -1;
    }
    Py_ssize_t used = 0;
    for (int unit = 0; unit < plan->length; unit++) {
        used += PyList_GET_ITEM(list, unit) != Py_None;
    }
    plan->slots = PyMem_Calloc((size_t)plan->length + 1, sizeof(uint32_t));
    plan->items = PyMem_Calloc((size_t)used + 1, sizeof(PlanItem));
    if (plan->slots == NULL || plan->items == NULL || used > MAX_ITEMS) {
        PyErr_NoMemory();
        Py_DECREF(bytecode);
        return -1;
    }
    mark_opcodes(plan, (const unsigned char *)PyBytes_AS_STRING(bytecode));
    Py_DECREF(bytecode);
    mark_handlers(plan);
    for (int unit = 0; unit < plan->length; unit++) {
        if (add_item(plan, unit, PyList_GET_ITEM(list, unit)) < 0) {
            return -1;
        }
    }
    /* A prefix stands for the instruction that it belongs to: that is where the event comes from. The handler
     * mark goes the other way, and stays where it is. */
    for (int unit = 0; unit < plan->length; unit++) {
        uint32_t prefix = SLOT_PREFIX(plan->slots[unit]);
        if (prefix != 0) {
            plan->slots[unit] |= SLOT_ITEM(plan->slots[unit + (int)prefix]);
        }
    }
#if MP_USES_MONITORING
    return compute_depths(plan);
#else
    return 0;
#endif
}

/* Frees a plan and the references in it. */
static void
plan_free(Plan *plan)
{
    for (Py_ssize_t i = 0; i < plan->item_count; i++) {
        Py_XDECREF(plan->items[i].before);
        Py_XDECREF(plan->items[i].after);
        Py_XDECREF(plan->items[i].arg);
    }
    PyMem_Free(plan->items);
    PyMem_Free(plan->slots);
    PyMem_Free(plan->depths);
    Py_DECREF(plan->code);
    PyMem_Free(plan);
}

/* Where the plan of a code pointer is, or would be put. The table must have room. */
static Plan **
table_slot(PlanTable *table, PyCodeObject *code)
{
    size_t mask = table->capacity - 1;
    size_t at = ((uintptr_t)code >> 4) * (size_t)0x9E3779B1u & mask;
    while (table->slots[at] != NULL && table->slots[at]->code != code) {
        at = (at + 1) & mask;
    }
    return &table->slots[at];
}

/* Makes room for one more plan. Returns -1 with an exception set. */
static int
table_reserve(PlanTable *table)
{
    if (2 * (table->used + 1) <= table->capacity) {
        return 0;
    }
    PlanTable bigger = {NULL, table->capacity ? 2 * table->capacity : 64, table->used};
    bigger.slots = PyMem_Calloc(bigger.capacity, sizeof(Plan *));
    if (bigger.slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < table->capacity; i++) {
        if (table->slots[i] != NULL) {
            *table_slot(&bigger, table->slots[i]->code) = table->slots[i];
        }
    }
    PyMem_Free(table->slots);
    *table = bigger;
    return 0;
}

/* Asks plan_for about a code object (borrowed) and makes its plan. NULL with an exception set. */
static Plan *
plan_new(Recorder *recorder, PyCodeObject *code)
{
    Plan *plan = PyMem_Calloc(1, sizeof(Plan));
    if (plan == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    plan->code = (PyCodeObject *)Py_NewRef(code);
    plan->args = code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0) +
                 ((code->co_flags & CO_VARKEYWORDS) != 0);
    mp_allow_recursion(recorder->tstate, CALLBACK_RECURSION);
    PyObject *list = PyObject_CallOneArg(recorder->plan_for, (PyObject *)code);
    mp_allow_recursion(recorder->tstate, -CALLBACK_RECURSION);
    if (list == NULL) {
        plan_free(plan);
        return NULL;
    }
    plan->monitored = list != Py_None;
    if (plan->monitored && read_list(plan, list) < 0) {
        plan_free(plan);
        plan = NULL;
    }
    Py_DECREF(list);
    return plan;
}

/* The plan of a code object (borrowed) if it was asked for already; belongs to the table. NULL without an
 * exception. */
Plan *
mp_plan_known(Recorder *recorder, PyCodeObject *code)
{
    PlanTable *table = &recorder->plans;
    return table->capacity != 0 ? *table_slot(table, code) : NULL;
}

/* The plan of a code object (borrowed), asked for the first time it is seen. The result belongs to the table;
 * NULL with an exception set. Runs plan_for. */
Plan *
mp_plan_find(Recorder *recorder, PyCodeObject *code)
{
    PlanTable *table = &recorder->plans;
    Plan *plan = mp_plan_known(recorder, code);
    if (plan != NULL) {
        return plan;
    }
    plan = plan_new(recorder, code);
    if (plan == NULL) {
        return NULL;
    }
    if (table_reserve(table) < 0) {
        plan_free(plan);
        return NULL;
    }
    *table_slot(table, code) = plan;
    table->used++;
    if (plan->monitored && recorder->status == RECORDER_RUNNING && mp_hooks_new_plan(recorder, plan) < 0) {
        return NULL;
    }
    return plan;
}

/* Visits every reference that the table owns. */
int
mp_plans_traverse(PlanTable *table, visitproc visit, void *arg)
{
    for (size_t i = 0; i < table->capacity; i++) {
        Plan *plan = table->slots[i];
        if (plan == NULL) {
            continue;
        }
        Py_VISIT(plan->code);
        for (Py_ssize_t k = 0; k < plan->item_count; k++) {
            Py_VISIT(plan->items[k].before);
            Py_VISIT(plan->items[k].after);
            Py_VISIT(plan->items[k].arg);
        }
    }
    return 0;
}

/* Drops every plan and the references that it owns. */
void
mp_plans_clear(PlanTable *table)
{
    PlanTable old = *table;
    *table = (PlanTable){NULL, 0, 0};
    for (size_t i = 0; i < old.capacity; i++) {
        if (old.slots[i] != NULL) {
            plan_free(old.slots[i]);
        }
    }
    PyMem_Free(old.slots);
}

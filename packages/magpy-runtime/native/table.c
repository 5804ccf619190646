/* A fact table: facts about objects that a record holds by identity, checked in one go.
 *
 * Every entry asks one question of one object and compares the answer by identity; where the answer is a plain value
 * that need not be the same object (a number, a string), a Python function compares type and value. None of the
 * questions runs code of the user's. */
#include "facts.h"

static void
table_clear_facts(FactTable *self)
{
    Py_ssize_t count = self->count;
    Fact *facts = self->facts;
    mp_snapshot_free(self->snapshot);
    self->snapshot = NULL;
    self->count = 0;
    self->facts = NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_XDECREF(facts[i].object);
        Py_XDECREF(facts[i].key);
        Py_XDECREF(facts[i].expected);
    }
    PyMem_Free(facts);
}

/* Number of elements of a builtin container, -1 for anything else. */
Py_ssize_t
mp_builtin_length(PyObject *object)
{
    if (PyDict_Check(object)) {
        return PyDict_GET_SIZE(object);
    }
    if (PyList_Check(object)) {
        return PyList_GET_SIZE(object);
    }
    if (PyTuple_Check(object)) {
        return PyTuple_GET_SIZE(object);
    }
    if (PyAnySet_Check(object)) {
        return PySet_GET_SIZE(object);
    }
    return -1;
}

/* A C member of an instance: a new reference, NULL where it is not set or there is none. A fact of a C type that has no
 * attribute of its own, storage_offset() of a tensor, comes from a method. No code of the user's runs. */
static PyObject *
member(PyObject *object, PyObject *name)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject *descriptor = _PyType_Lookup(type, name), *found;
    if (descriptor == NULL) {
        return NULL;
    }
    Py_INCREF(descriptor);
    if (Py_IS_TYPE(descriptor, &PyMethodDescr_Type)) {
        found = PyObject_CallOneArg(descriptor, object);
    }
    else if (Py_IS_TYPE(descriptor, &PyMemberDescr_Type) || Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) {
        found = Py_TYPE(descriptor)->tp_descr_get(descriptor, object, (PyObject *)type);
        if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
            PyErr_Clear();
        }
    }
    else {
        found = NULL;
    }
    Py_DECREF(descriptor);
    return found;
}

/* The answer to a question now: a borrowed reference, kept alive by `*owned` where it is new. NULL without an
 * exception: there is nothing. Not for lengths. */
PyObject *
mp_answer(int question, PyObject *object, PyObject *key, Py_ssize_t number, PyObject **owned)
{
    switch (question) {
    case ASK_ITEM:
        return PyDict_GetItemWithError(object, key);
    case ASK_DICT:
        return *owned = PyObject_GenericGetDict(object, NULL);
    case ASK_TYPE:
        return (PyObject *)Py_TYPE(object);
    case ASK_CLASS:
        return _PyType_Lookup((PyTypeObject *)object, key);
    case ASK_ELEMENT:
        if (PyList_Check(object)) {
            return number < PyList_GET_SIZE(object) ? PyList_GET_ITEM(object, number) : NULL;
        }
        return number < PyTuple_GET_SIZE(object) ? PyTuple_GET_ITEM(object, number) : NULL;
    case ASK_CELL:
        return PyCell_GET(object);
    case ASK_CODE:
        return PyFunction_GET_CODE(object);
    case ASK_DEFAULTS:
        return PyFunction_GET_DEFAULTS(object) != NULL ? PyFunction_GET_DEFAULTS(object) : Py_None;
    case ASK_KWDEFAULTS:
        return PyFunction_GET_KW_DEFAULTS(object) != NULL ? PyFunction_GET_KW_DEFAULTS(object) : Py_None;
    case ASK_MEMBER:
        return *owned = member(object, key);
    default:
        *owned = PyObject_CallOneArg(key, object);
        return *owned == mp_null ? NULL : *owned;
    }
}

static bool
is_of_ints(PyObject *tuple)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        if (!PyLong_CheckExact(PyTuple_GET_ITEM(tuple, i))) {
            return false;
        }
    }
    return true;
}

/* Whether two values of one type, of which no program can change either, are the same: floats by their bits. */
int
mp_same_value(PyObject *same_value, PyObject *one, PyObject *other)
{
    if (PyUnicode_CheckExact(one)) {
        return PyUnicode_Compare(one, other) == 0 && !PyErr_Occurred();
    }
    if (PyLong_CheckExact(one) || PyBytes_CheckExact(one)) {
        return PyObject_RichCompareBool(one, other, Py_EQ);
    }
    if (PyFloat_CheckExact(one)) {
        double first = PyFloat_AS_DOUBLE(one), second = PyFloat_AS_DOUBLE(other);
        return memcmp(&first, &second, sizeof(double)) == 0 || (first != first && second != second);
    }
    if (PyTuple_CheckExact(one) && PyTuple_CheckExact(other) && is_of_ints(one) && is_of_ints(other)) {
        return PyObject_RichCompareBool(one, other, Py_EQ);
    }
    PyObject *args[3] = {NULL, one, other};
    PyObject *same = PyObject_Vectorcall(same_value, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    int result = same == NULL ? -1 : same == Py_True;
    Py_XDECREF(same);
    return result;
}

/* Whether a fact holds: 1 or 0, -1 with an exception set. */
int
mp_fact_holds(const FactTable *self, const Fact *fact)
{
    if (fact->question == ASK_LENGTH) {
        return mp_builtin_length(fact->object) == fact->number;
    }
    if (fact->question == ASK_TRUTH) {
        return (mp_builtin_length(fact->object) > 0) == (fact->number != 0);
    }
    PyObject *owned = NULL;
    PyObject *found = mp_answer(fact->question, fact->object, fact->key, fact->number, &owned);
    int result;
    if (found == NULL) {
        if (PyErr_Occurred()) {
            Py_XDECREF(owned);
            return -1;
        }
        result = fact->expected == mp_null;
    }
    else if (found == fact->expected) {
        result = 1;
    }
    else if (fact->plain && Py_TYPE(found) == Py_TYPE(fact->expected)) {
        Py_INCREF(found);
        result = mp_same_value(self->same_value, found, fact->expected);
        Py_DECREF(found);
    }
    else {
        result = 0;
    }
    Py_XDECREF(owned);
    return result;
}

/* Whether all facts hold: 1; 0 with the number of the first that does not; -1 with an exception set. Where the snapshot
 * sees that nothing moved no fact is asked; where it has doubts all are. */
int
mp_table_check(FactTable *self, Py_ssize_t *failed)
{
    if (self->snapshot != NULL) {
        int unchanged = mp_snapshot_check(self->snapshot, self);
        if (unchanged != 0) {
            return unchanged;
        }
    }
    self->full++;
    for (Py_ssize_t i = 0; i < self->count; i++) {
        int held = mp_fact_holds(self, &self->facts[i]);
        if (held <= 0) {
            *failed = i;
            return held;
        }
    }
    if (self->snapshot == NULL && !self->bare) {
        self->snapshot = mp_snapshot_new(self, &self->bare);
    }
    return 1;
}

/* table(): None when all facts hold, else the number of the first that does not. */
static PyObject *
table_call(PyObject *object, PyObject *const *Py_UNUSED(args), size_t nargsf, PyObject *kwnames)
{
    FactTable *self = (FactTable *)object;
    if (PyVectorcall_NARGS(nargsf) != 0 || (kwnames != NULL && PyTuple_GET_SIZE(kwnames) != 0)) {
        PyErr_SetString(PyExc_TypeError, "a fact table takes no arguments");
        return NULL;
    }
    Py_ssize_t failed;
    int held = mp_table_check(self, &failed);
    if (held < 0) {
        return NULL;
    }
    if (!held) {
        return PyLong_FromSsize_t(failed);
    }
    Py_RETURN_NONE;
}

/* Whether an object is what a question may be asked of. */
bool
mp_fits(int question, PyObject *object, PyObject *key)
{
    switch (question) {
    case ASK_ITEM:
        return PyDict_Check(object) && key != NULL;
    case ASK_LENGTH:
    case ASK_TRUTH:
        return mp_builtin_length(object) >= 0;
    case ASK_CLASS:
        return PyType_Check(object) && key != NULL && PyUnicode_CheckExact(key);
    case ASK_ELEMENT:
        return (PyList_Check(object) || PyTuple_Check(object)) && key != NULL && PyLong_CheckExact(key);
    case ASK_CELL:
        return PyCell_Check(object);
    case ASK_CODE:
    case ASK_DEFAULTS:
    case ASK_KWDEFAULTS:
        return PyFunction_Check(object);
    case ASK_OTHER:
    case ASK_KEYS:
        return key != NULL && PyCallable_Check(key);
    case ASK_MEMBER:
        return key != NULL && PyUnicode_CheckExact(key);
    case ASK_SUPER:
        return PyType_Check(object) && key != NULL && PyCallable_Check(key);
    case ASK_DICT:
        return !PyType_Check(object);
    default:
        return question == ASK_TYPE;
    }
}

/* FactTable(facts, same_value): facts are tuples (kind, object, key, expected, plain); all are kept. */
static PyObject *
table_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *list, *same_value;
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs) != 0) {
        PyErr_SetString(PyExc_TypeError, "FactTable takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O!O:FactTable", &PyList_Type, &list, &same_value)) {
        return NULL;
    }
    FactTable *self = (FactTable *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = table_call;
    self->same_value = Py_NewRef(same_value);
    Py_ssize_t size = PyList_GET_SIZE(list);
    self->facts = PyMem_Calloc(size > 0 ? (size_t)size : 1, sizeof(Fact));
    if (self->facts == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        int question, plain;
        PyObject *object, *key, *expected, *entry = PyList_GET_ITEM(list, i);
        if (!PyTuple_Check(entry)) {
            PyErr_Format(PyExc_TypeError, "fact %zd is a %s, not a tuple", i, Py_TYPE(entry)->tp_name);
            Py_DECREF(self);
            return NULL;
        }
        if (!PyArg_ParseTuple(entry, "iOOOp", &question, &object, &key, &expected, &plain)) {
            Py_DECREF(self);
            return NULL;
        }
        Fact fact = {.question = question, .plain = plain};
        key = key == Py_None && question != ASK_ITEM ? NULL : key;
        if (question < 0 || question >= ASK_KINDS || !mp_fits(question, object, key)) {
            PyErr_Format(PyExc_ValueError, "fact %zd: question %d cannot be asked of a %s", i, question,
                         Py_TYPE(object)->tp_name);
            Py_DECREF(self);
            return NULL;
        }
        if (question == ASK_LENGTH || question == ASK_TRUTH || question == ASK_ELEMENT) {
            fact.number = PyLong_AsSsize_t(question == ASK_ELEMENT ? key : expected);
            if (fact.number == -1 && PyErr_Occurred()) {
                Py_DECREF(self);
                return NULL;
            }
            if (fact.number < 0) {
                PyErr_Format(PyExc_ValueError, "fact %zd: %zd is neither a length nor an index", i, fact.number);
                Py_DECREF(self);
                return NULL;
            }
        }
        if (key != NULL && PyUnicode_CheckExact(key)) {
            Py_INCREF(key);
            PyUnicode_InternInPlace(&key);
            fact.key = key;
        }
        else {
            fact.key = Py_XNewRef(key);
        }
        fact.object = Py_NewRef(object);
        fact.expected = Py_NewRef(expected);
        self->facts[i] = fact;
        self->count = i + 1;
    }
    return (PyObject *)self;
}

static int
table_traverse(PyObject *object, visitproc visit, void *arg)
{
    FactTable *self = (FactTable *)object;
    Py_VISIT(self->same_value);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Py_VISIT(self->facts[i].object);
        Py_VISIT(self->facts[i].key);
        Py_VISIT(self->facts[i].expected);
    }
    return 0;
}

static int
table_clear(PyObject *object)
{
    FactTable *self = (FactTable *)object;
    table_clear_facts(self);
    Py_CLEAR(self->same_value);
    return 0;
}

static void
table_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    table_clear(object);
    Py_TYPE(object)->tp_free(object);
}

static Py_ssize_t
table_length(PyObject *object)
{
    return ((FactTable *)object)->count;
}

/* counts(): how often what was asked, as a dictionary. */
static PyObject *
table_counts(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    return mp_snapshot_counts((FactTable *)object);
}

static PyMethodDef table_methods[] = {
    {"counts", table_counts, METH_NOARGS,
     "counts()\n--\n\nFull passes, groups of facts that were asked again, and what the snapshot watches."},
    {NULL, NULL, 0, NULL},
};

static PySequenceMethods table_sequence = {.sq_length = table_length};

PyTypeObject mp_FactTableType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "magpy_runtime._native.FactTable",
    .tp_basicsize = sizeof(FactTable),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "FactTable(facts, same_value)\n--\n\nFacts about objects that are held by identity, checked in one go.",
    .tp_new = table_new,
    .tp_dealloc = table_dealloc,
    .tp_traverse = table_traverse,
    .tp_clear = table_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(FactTable, vectorcall),
    .tp_as_sequence = &table_sequence,
    .tp_methods = table_methods,
};

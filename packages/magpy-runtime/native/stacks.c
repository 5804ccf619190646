/* How deep a code object's stack is at each instruction, kept with the code object as long as it lives. */
#include "capture.h"

#if PY_VERSION_HEX >= 0x030C0000
#  define REQUEST_EXTRA PyUnstable_Eval_RequestCodeExtraIndex
#  define GET_EXTRA PyUnstable_Code_GetExtra
#  define SET_EXTRA PyUnstable_Code_SetExtra
#else
#  define REQUEST_EXTRA _PyEval_RequestCodeExtraIndex
#  define GET_EXTRA _PyCode_GetExtra
#  define SET_EXTRA _PyCode_SetExtra
#endif

static Py_ssize_t extra_index = -1;
static PyObject *stack_tables_function = NULL;      /* owned: magpy_runtime._instructions.stack_tables */

static void
free_tables(void *tables)
{
    PyMem_RawFree(tables);
}

/* Finds stack_tables before a program runs: importing it later would ask the program's frame for `__import__`.
 * Returns -1 with an exception set. */
int
mp_stacks_prepare(void)
{
    if (extra_index < 0) {
        extra_index = REQUEST_EXTRA(free_tables);
        if (extra_index < 0) {
            PyErr_SetString(PyExc_RuntimeError, "CPython keeps no more data with code objects");
            return -1;
        }
    }
    if (stack_tables_function == NULL) {
        PyObject *module = PyImport_ImportModule("magpy_runtime._instructions");
        stack_tables_function = module != NULL ? PyObject_GetAttrString(module, "stack_tables") : NULL;
        Py_XDECREF(module);
    }
    return stack_tables_function == NULL ? -1 : 0;
}

/* Copies one array of 32-bit numbers. Returns -1 with an exception set. */
static int
copy_numbers(int32_t *to, PyObject *numbers, int length)
{
    Py_buffer view;
    if (PyObject_GetBuffer(numbers, &view, PyBUF_SIMPLE) < 0) {
        return -1;
    }
    int status = 0;
    if (view.len != (Py_ssize_t)((size_t)length * sizeof(int32_t))) {
        PyErr_SetString(PyExc_ValueError, "stack_tables must give one 32-bit number a code unit");
        status = -1;
    }
    else {
        memcpy(to, view.buf, (size_t)view.len);
    }
    PyBuffer_Release(&view);
    return status;
}

/* Finds a return instruction, and whether it takes a value off the stack. Gives its code unit, -1 where there is none, -2
 * with an exception set. */
int
mp_find_return(PyCodeObject *code, bool *pushes)
{
    PyObject *bytecode = PyCode_GetCode(code);
    if (bytecode == NULL) {
        return -2;
    }
    const unsigned char *bytes = (const unsigned char *)PyBytes_AS_STRING(bytecode);
    int length = (int)(PyBytes_GET_SIZE(bytecode) / 2), found = -1;
    for (int unit = code->_co_firsttraceable; found < 0 && unit < length; unit++) {
        bool constant = false;
#ifdef RETURN_CONST
        constant = bytes[2 * unit] == RETURN_CONST;
#endif
        if (constant || (bytes[2 * unit] == RETURN_VALUE && code->co_stacksize > 0)) {
            found = unit;
            *pushes = !constant;
        }
    }
    Py_DECREF(bytecode);
    return found;
}

/* The tables of a code object (borrowed from it); NULL with an exception set. Gives no events. */
const CodeTables *
mp_code_tables(PyCodeObject *code)
{
    void *known = NULL;
    if (extra_index >= 0 && GET_EXTRA((PyObject *)code, extra_index, &known) < 0) {
        return NULL;
    }
    if (known != NULL) {
        return known;
    }
    if (mp_stacks_prepare() < 0) {
        return NULL;
    }
    PyThreadState *tstate = PyThreadState_Get();
    PyThreadState_EnterTracing(tstate);
    PyObject *numbers = PyObject_CallOneArg(stack_tables_function, (PyObject *)code);
    PyThreadState_LeaveTracing(tstate);
    if (numbers == NULL) {
        return NULL;
    }
    int length = (int)Py_SIZE(code);
    CodeTables *tables = PyMem_RawMalloc(sizeof(CodeTables) + 3 * (size_t)length * sizeof(int32_t));
    if (tables == NULL) {
        PyErr_NoMemory();
    }
    else {
        tables->length = length;
        tables->pushes = false;
        tables->leave = mp_find_return(code, &tables->pushes);
        tables->depths = (int32_t *)(tables + 1);
        tables->kept = tables->depths + length;
        tables->indices = tables->kept + length;
        if (!PyTuple_Check(numbers) || PyTuple_GET_SIZE(numbers) != 3) {
            PyErr_SetString(PyExc_TypeError, "stack_tables must give three arrays");
        }
        if (PyErr_Occurred() || copy_numbers(tables->depths, PyTuple_GET_ITEM(numbers, 0), length) < 0 ||
            copy_numbers(tables->kept, PyTuple_GET_ITEM(numbers, 1), length) < 0 ||
            copy_numbers(tables->indices, PyTuple_GET_ITEM(numbers, 2), length) < 0 ||
            SET_EXTRA((PyObject *)code, extra_index, tables) < 0) {
            PyMem_RawFree(tables);
            tables = NULL;
        }
    }
    Py_DECREF(numbers);
    return tables;
}

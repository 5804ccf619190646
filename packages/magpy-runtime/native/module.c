/* The module magpy_runtime._native. */
#include "dispatch.h"

PyObject *mp_null = NULL;
PyObject *mp_empty = NULL;

static PyObject *
null_repr(PyObject *Py_UNUSED(self))
{
    return PyUnicode_FromString("NULL");
}

PyTypeObject mp_NullType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "magpy_runtime._native.NullType",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "The type of NULL, which stands for an empty slot.",
    .tp_repr = null_repr,
};

static PyMethodDef resume_methods[] = {
    {"resume", (PyCFunction)(void (*)(void))mp_resume, METH_VARARGS | METH_KEYWORDS,
     "resume(frames, exception=None, recorder=None)\n--\n\nRebuild frames and let them go on."},
    {"call_below", (PyCFunction)(void (*)(void))mp_call_below, METH_FASTCALL,
     "call_below(frames, function, args, kwargs, /)\n--\n\nCall a function below rebuilt frames."},
    {"unhooked", (PyCFunction)(void (*)(void))mp_unhooked, METH_FASTCALL,
     "unhooked(function, args, kwargs, /)\n--\n\nCall a function below which no FrameHook of this thread answers."},
    {"drawn", (PyCFunction)(void (*)(void))mp_drawn, METH_FASTCALL,
     "drawn(slowly, is_ahead, arg, iterator, /)\n--\n\nWhat an iterator gives next or draws from."},
    {"hide", mp_hide, METH_O, "hide(prefixes, /)\n--\n\nHide frames of these files from functions called below frames."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef native_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "magpy_runtime._native",
    .m_doc = "The native part of magpy_runtime.",
    .m_size = -1,
    .m_methods = mp_probe_methods,
};

/* Gives the new module. */
PyMODINIT_FUNC
PyInit__native(void)
{
    if (PyType_Ready(&mp_NullType) < 0 || PyType_Ready(&mp_RecorderType) < 0 ||
        PyType_Ready(&mp_FactTableType) < 0 || PyType_Ready(&mp_FrameHookType) < 0) {
        return NULL;
    }
    if (mp_null == NULL) {
        mp_null = PyObject_New(PyObject, &mp_NullType);
        mp_empty = PyTuple_New(0);
        if (mp_null == NULL || mp_empty == NULL) {
            return NULL;
        }
    }
    PyObject *module = PyModule_Create(&native_module);
    if (module == NULL || PyModule_AddFunctions(module, resume_methods) < 0 ||
        PyModule_AddObjectRef(module, "NULL", mp_null) < 0 ||
        PyModule_AddType(module, &mp_NullType) < 0 || PyModule_AddType(module, &mp_RecorderType) < 0 ||
        PyModule_AddType(module, &mp_FactTableType) < 0 || PyModule_AddType(module, &mp_FrameHookType) < 0 ||
        mp_dispatch_ready(module) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}

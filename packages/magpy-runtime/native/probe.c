/* Questions about objects that run none of the user's code. */
#include "capture.h"

/* type_lookup(tp, name): what the type and its bases hold under a name, without running descriptors; a new
 * reference, mp_null when there is nothing. Only metaclasses' own mro() could differ, and it is not asked. */
static PyObject *
type_lookup(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyType_Check(args[0]) || !PyUnicode_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "type_lookup(type, name)");
        return NULL;
    }
    PyObject *found = _PyType_Lookup((PyTypeObject *)args[0], args[1]);
    return Py_NewRef(found != NULL ? found : mp_null);
}

/* The namespace of a type as a new reference, or NULL without an exception. */
static PyObject *
type_namespace(PyTypeObject *type)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyType_GetDict(type);
#else
    return Py_XNewRef(type->tp_dict);
#endif
}

/* super_lookup(tp, after, name): what the bases of `tp` that come after `after` in its MRO hold under a name; a
 * new reference, mp_null when there is nothing. */
static PyObject *
super_lookup(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyType_Check(args[0]) || !PyType_Check(args[1]) || !PyUnicode_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "super_lookup(type, after, name)");
        return NULL;
    }
    PyObject *mro = ((PyTypeObject *)args[0])->tp_mro;
    Py_ssize_t size = mro != NULL ? PyTuple_GET_SIZE(mro) : 0, at = 0;
    while (at < size && PyTuple_GET_ITEM(mro, at) != args[1]) {
        at++;
    }
    for (at++; at < size; at++) {
        PyObject *names = type_namespace((PyTypeObject *)PyTuple_GET_ITEM(mro, at));
        PyObject *found = names != NULL ? PyDict_GetItemWithError(names, args[2]) : NULL;
        Py_XINCREF(found);
        Py_XDECREF(names);
        if (found != NULL || PyErr_Occurred()) {
            return found;
        }
    }
    return Py_NewRef(mp_null);
}

/* Whether instances of a type have a slot for a __dict__. */
static bool
has_dict_slot(PyTypeObject *type)
{
#if PY_VERSION_HEX >= 0x030C0000
    if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT) {
        return true;
    }
#endif
    return type->tp_dictoffset != 0;
}

/* instance_dict(obj): the dictionary behind obj.__dict__ as a new reference (made where it was not yet), or
 * None. For a type it is the namespace itself, not the read-only view that Python code gets. */
static PyObject *
instance_dict(PyObject *Py_UNUSED(module), PyObject *object)
{
    if (PyType_Check(object)) {
        PyObject *names = type_namespace((PyTypeObject *)object);
        return names != NULL ? names : Py_NewRef(Py_None);
    }
    if (!has_dict_slot(Py_TYPE(object))) {
        Py_RETURN_NONE;
    }
    return PyObject_GenericGetDict(object, NULL);
}

/* has_instance_dict(obj): whether obj can have a __dict__; makes none. */
static PyObject *
has_instance_dict(PyObject *Py_UNUSED(module), PyObject *object)
{
    return PyBool_FromLong(has_dict_slot(Py_TYPE(object)));
}

/* type_version(tp): the type's version tag, 0 when it has none now. */
static PyObject *
type_version(PyObject *Py_UNUSED(module), PyObject *object)
{
    if (!PyType_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "type_version(type)");
        return NULL;
    }
    PyTypeObject *type = (PyTypeObject *)object;
#if PY_VERSION_HEX < 0x030D0000
    /* Until 3.12 a flag says whether the tag holds; from 3.13 on a tag that does not is 0. */
    if (!PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG)) {
        return PyLong_FromLong(0);
    }
#endif
    return PyLong_FromUnsignedLong(type->tp_version_tag);
}

/* dict_version(d): the dictionary's version on 3.11, where every change gives it a new one; 0 elsewhere. */
static PyObject *
dict_version(PyObject *Py_UNUSED(module), PyObject *object)
{
    if (!PyDict_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "dict_version(dict)");
        return NULL;
    }
#if PY_VERSION_HEX < 0x030C0000
    return PyLong_FromUnsignedLongLong(((PyDictObject *)object)->ma_version_tag);
#else
    return PyLong_FromLong(0);
#endif
}

/* distinct_int(n): an int of the same value that is no other object: neither the interpreter's own small one nor `n`. */
static PyObject *
distinct_int(PyObject *Py_UNUSED(module), PyObject *object)
{
    if (!PyLong_CheckExact(object)) {
        PyErr_SetString(PyExc_TypeError, "distinct_int(int)");
        return NULL;
    }
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow || value < -(long long)PyLong_MASK || value > (long long)PyLong_MASK) {
        return _PyLong_Copy((PyLongObject *)object);
    }
    PyLongObject *made = _PyLong_New(value != 0);
    if (made == NULL) {
        return NULL;
    }
#if PY_VERSION_HEX >= 0x030C0000
    made->long_value.ob_digit[0] = (digit)(value < 0 ? -value : value);
    made->long_value.lv_tag = value == 0 ? 1 : (value < 0 ? 2 : 0) | ((uintptr_t)1 << 3);
#else
    made->ob_digit[0] = (digit)(value < 0 ? -value : value);
    Py_SET_SIZE(made, value < 0 ? -1 : value > 0);
#endif
    return (PyObject *)made;
}

/* put_in_tuple(tuple, index, obj): changes a tuple. The caller vouches that the two objects are equal. */
static PyObject *
put_in_tuple(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *tuple, *obj;
    Py_ssize_t index;
    if (!PyArg_ParseTuple(args, "O!nO:put_in_tuple", &PyTuple_Type, &tuple, &index, &obj)) {
        return NULL;
    }
    if (index < 0 || index >= PyTuple_GET_SIZE(tuple)) {
        PyErr_SetString(PyExc_IndexError, "put_in_tuple() index out of range");
        return NULL;
    }
    PyObject *old = PyTuple_GET_ITEM(tuple, index);
    PyTuple_SET_ITEM(tuple, index, Py_NewRef(obj));
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

PyMethodDef mp_probe_methods[] = {
    {"type_lookup", (PyCFunction)(void (*)(void))type_lookup, METH_FASTCALL,
     "type_lookup(type, name, /)\n--\n\nWhat the type's MRO holds under a name, or NULL; no descriptor runs."},
    {"super_lookup", (PyCFunction)(void (*)(void))super_lookup, METH_FASTCALL,
     "super_lookup(type, after, name, /)\n--\n\nLike type_lookup, but only in the bases after `after`."},
    {"instance_dict", instance_dict, METH_O, "instance_dict(obj, /)\n--\n\nThe real __dict__, or None."},
    {"has_instance_dict", has_instance_dict, METH_O, "has_instance_dict(obj, /)\n--\n\nWhether obj can have a __dict__."},
    {"type_version", type_version, METH_O, "type_version(type, /)\n--\n\nThe type's version tag, 0 when it has none."},
    {"dict_version", dict_version, METH_O, "dict_version(dict, /)\n--\n\nThe dictionary's version (3.11), else 0."},
    {"distinct_int", distinct_int, METH_O, "distinct_int(n, /)\n--\n\nAn int of the same value that is another object."},
    {"put_in_tuple", put_in_tuple, METH_VARARGS, "put_in_tuple(tuple, index, obj, /)\n--\n\nPut an equal object in a tuple."},
    {NULL, NULL, 0, NULL},
};

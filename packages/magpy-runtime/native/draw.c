/* Questions about iterators of builtin containers, answered without Python: what comes next, and what they draw from.
 *
 * `magpy_runtime.iterators` says the same and is the truth: whatever is not known here is asked there. The layouts are
 * CPython's own and the same from 3.11 to 3.13, but for that of ranges. */
#include "facts.h"

typedef struct {
    PyObject_HEAD
    Py_ssize_t index;
    PyObject *sequence;     /* NULL once it is exhausted */
} SequenceIterator;

typedef struct {
    PyObject_HEAD
    PyDictObject *dict;     /* NULL once it is exhausted */
    Py_ssize_t used;
    Py_ssize_t position;
    PyObject *result;
    Py_ssize_t left;
} DictIterator;

typedef struct {
    PyObject_HEAD
    Py_ssize_t index;
    PyObject *iterator;
    PyObject *result;
    PyObject *long_index;   /* NULL as long as `index` is enough */
} Enumerate;

/* The iterator of a range whose numbers fit into a C long. */
typedef struct {
    PyObject_HEAD
#if PY_VERSION_HEX < 0x030C0000
    long index;
#endif
    long start;
    long step;
    long length;            /* from 3.12 on, of what is left, which starts at `start` */
} RangeIterator;

static bool
is_sequence_iterator(PyObject *iterator)
{
    return Py_IS_TYPE(iterator, &PyListIter_Type) || Py_IS_TYPE(iterator, &PyTupleIter_Type);
}

static bool
is_dict_iterator(PyObject *iterator)
{
    return Py_IS_TYPE(iterator, &PyDictIterKey_Type) || Py_IS_TYPE(iterator, &PyDictIterValue_Type);
}

/* What the iterator of a range gives after `count` more elements. The largest number is no overflow: it is in the range. */
static PyObject *
range_ahead(const RangeIterator *iterator, Py_ssize_t count)
{
#if PY_VERSION_HEX < 0x030C0000
    long past = iterator->index;
#else
    long past = 0;
#endif
    if (past >= iterator->length || count >= iterator->length - past) {
        return Py_NewRef(mp_null);
    }
    return PyLong_FromLong((long)((unsigned long)iterator->start + (unsigned long)(past + count) * (unsigned long)iterator->step));
}

/* What comes after `count` more elements: a new reference, or NULL without an exception where Python has to be asked. */
static PyObject *
ahead(PyObject *object, Py_ssize_t count)
{
    if (is_sequence_iterator(object)) {
        const SequenceIterator *iterator = (SequenceIterator *)object;
        PyObject *sequence = iterator->sequence;
        if (sequence == NULL) {
            return Py_NewRef(mp_null);
        }
        bool list = PyList_Check(sequence);
        if (iterator->index < 0 || (!list && !PyTuple_Check(sequence))) {
            return NULL;
        }
        Py_ssize_t size = list ? PyList_GET_SIZE(sequence) : PyTuple_GET_SIZE(sequence);
        if (iterator->index >= size || count >= size - iterator->index) {
            return Py_NewRef(mp_null);
        }
        Py_ssize_t at = iterator->index + count;
        return Py_NewRef(list ? PyList_GET_ITEM(sequence, at) : PyTuple_GET_ITEM(sequence, at));
    }
    if (is_dict_iterator(object)) {
        const DictIterator *iterator = (DictIterator *)object;
        PyObject *dict = (PyObject *)iterator->dict;
        if (dict == NULL) {
            return Py_NewRef(mp_null);
        }
        if (iterator->used != PyDict_GET_SIZE(dict) || iterator->used > 256) {
            return NULL;
        }
        Py_ssize_t at = iterator->position, seen = 0;
        PyObject *key, *value, *found = mp_null;
        while (PyDict_Next(dict, &at, &key, &value)) {  /* to the end: keys that were changed show there */
            if (seen++ == count) {
                found = Py_IS_TYPE(object, &PyDictIterKey_Type) ? key : value;
            }
        }
        return seen == iterator->left ? Py_NewRef(found) : NULL;
    }
    return Py_IS_TYPE(object, &PyRangeIter_Type) ? range_ahead((RangeIterator *)object, count) : NULL;
}

/* A part of an iterator, likewise. */
static PyObject *
part(PyObject *object, PyObject *name)
{
    if (PyUnicode_CheckExact(name)) {
        if (Py_IS_TYPE(object, &PyEnum_Type) && PyUnicode_CompareWithASCIIString(name, "count") == 0) {
            const Enumerate *iterator = (Enumerate *)object;
            return iterator->long_index != NULL ? Py_NewRef(iterator->long_index) : PyLong_FromSsize_t(iterator->index);
        }
        if (PyUnicode_CompareWithASCIIString(name, "source") == 0) {
            if (is_sequence_iterator(object)) {
                PyObject *sequence = ((SequenceIterator *)object)->sequence;
                return Py_NewRef(sequence != NULL ? sequence : mp_null);
            }
            if (is_dict_iterator(object)) {
                PyObject *dict = (PyObject *)((DictIterator *)object)->dict;
                return Py_NewRef(dict != NULL ? dict : mp_null);
            }
            if (Py_IS_TYPE(object, &PyRangeIter_Type)) {
                return Py_NewRef(mp_null);
            }
        }
    }
    else if (PyLong_CheckExact(name) && Py_IS_TYPE(object, &PyEnum_Type)) {
        PyObject *iterator = ((Enumerate *)object)->iterator;
        return iterator != NULL ? Py_NewRef(iterator) : NULL;
    }
    return NULL;
}

/* What `slowly(iterator)` gives. */
PyObject *
mp_draw(PyObject *slowly, PyObject *is_ahead, PyObject *arg, PyObject *iterator)
{
    PyObject *found = NULL;
    if (is_ahead != Py_True) {
        found = part(iterator, arg);
    }
    else if (PyLong_CheckExact(arg)) {
        Py_ssize_t number = PyLong_AsSsize_t(arg);
        PyErr_Clear();  /* a number that is too large */
        found = number >= 0 ? ahead(iterator, number) : NULL;
    }
    if (found == NULL && !PyErr_Occurred()) {
        found = PyObject_CallOneArg(slowly, iterator);
    }
    return found;
}

/* drawn(slowly, is_ahead, arg, iterator): the same. */
PyObject *
mp_drawn(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "drawn(slowly, is_ahead, arg, iterator)");
        return NULL;
    }
    return mp_draw(args[0], args[1], args[2], args[3]);
}

/* The types of boundaries: what is read of a BoundarySite where a call goes on behind it (chain.c), and where it led. */
#include "dispatch.h"

#include <structmember.h>

static int
site_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(((SiteSlots *)object)->ways[0]);
    Py_VISIT(((SiteSlots *)object)->ways[1]);
    return 0;
}

static int
site_clear(PyObject *object)
{
    Py_CLEAR(((SiteSlots *)object)->ways[0]);
    Py_CLEAR(((SiteSlots *)object)->ways[1]);
    return 0;
}

static void
site_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    site_clear(object);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *
site_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    return type->tp_alloc(type, 0);
}

static PyMemberDef site_members[] = {
    {"taken", T_PYSSIZET, offsetof(SiteSlots, taken), 0, "How often it was reached."},
    {"sees", T_BOOL, offsetof(SiteSlots, sees), 0, "Whether the operation may look at its callers."},
    {"steady", T_BOOL, offsetof(SiteSlots, steady), 0, "Whether the operation is known to leave torch's modes as they are."},
    {"form", T_INT, offsetof(SiteSlots, form), 0, "How an outcome enters: 1 if pushed, 2 if tested, 0 in another way."},
    {"when_false", T_OBJECT, offsetof(SiteSlots, ways[0]), 0, "Where one leads that is pushed or false, or None."},
    {"when_true", T_OBJECT, offsetof(SiteSlots, ways[1]), 0, "Where one leads that is true, or None."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject mp_SiteSlotsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "magpy_runtime._native.SiteSlots",
    .tp_basicsize = sizeof(SiteSlots),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_doc = "The part of a boundary that is read where a call goes on behind it.",
    .tp_new = site_new,
    .tp_dealloc = site_dealloc,
    .tp_traverse = site_traverse,
    .tp_clear = site_clear,
    .tp_members = site_members,
};

/* Way(point, cache) */
static PyObject *
way_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *point, *cache;
    if (kwargs != NULL || !PyArg_ParseTuple(args, "OO!:Way", &point, &mp_CacheSlotsType, &cache)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "Way() takes no keyword arguments");
        }
        return NULL;
    }
    Way *self = (Way *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->point = Py_NewRef(point);
        self->cache = Py_NewRef(cache);
    }
    return (PyObject *)self;
}

static int
way_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(((Way *)object)->point);
    Py_VISIT(((Way *)object)->cache);
    return 0;
}

static int
way_clear(PyObject *object)
{
    Py_CLEAR(((Way *)object)->point);
    Py_CLEAR(((Way *)object)->cache);
    return 0;
}

static void
way_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    way_clear(object);
    Py_TYPE(object)->tp_free(object);
}

static PyMemberDef way_members[] = {
    {"point", T_OBJECT_EX, offsetof(Way, point), READONLY, "The resume point."},
    {"count", T_PYSSIZET, offsetof(Way, count), 0, "How often the boundary led there."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject mp_WayType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "magpy_runtime._native.Way",
    .tp_basicsize = sizeof(Way),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Way(point, cache, /)\n--\n\nWhere a boundary leads.",
    .tp_new = way_new,
    .tp_dealloc = way_dealloc,
    .tp_traverse = way_traverse,
    .tp_clear = way_clear,
    .tp_members = way_members,
};

/* Add the types of this file to the module. */
int
mp_ways_ready(PyObject *module)
{
    if (PyType_Ready(&mp_SiteSlotsType) < 0 || PyModule_AddType(module, &mp_SiteSlotsType) < 0 ||
        PyType_Ready(&mp_WayType) < 0 || PyModule_AddType(module, &mp_WayType) < 0) {
        return -1;
    }
    /* So that dataclasses with slots make none of their own for these. */
    PyObject *slots = Py_BuildValue("(ssssss)", "taken", "sees", "steady", "form", "when_false", "when_true");
    int done = slots == NULL ? -1 : PyDict_SetItemString(mp_SiteSlotsType.tp_dict, "__slots__", slots);
    Py_XDECREF(slots);
    PyType_Modified(&mp_SiteSlotsType);
    return done;
}

/* Facts about objects, and the snapshot that spares asking them: what table.c, snapshot.c and dispatch.c share. */
#ifndef MAGPY_FACTS_H
#define MAGPY_FACTS_H

#include "capture.h"

/* What an entry asks. The order is that of magpy_codegen's FactKind. */
typedef enum {
    ASK_ITEM,       /* a dictionary's item at `key` */
    ASK_DICT,       /* an instance's attribute dictionary */
    ASK_TYPE,       /* the object's type */
    ASK_LENGTH,     /* number of elements of a builtin container */
    ASK_TRUTH,      /* whether a builtin container has elements */
    ASK_CLASS,      /* a class's attribute `key` along its MRO */
    ASK_ELEMENT,    /* element number `key` of a list or tuple */
    ASK_CELL,       /* content of a closure's cell */
    ASK_CODE,       /* a function's code */
    ASK_DEFAULTS,   /* a function's defaults, None when it has none */
    ASK_KWDEFAULTS, /* a function's keyword-only defaults, None when it has none */
    ASK_OTHER,      /* `key(obj)`, a function of MagPy's */
    ASK_KEYS,       /* the same, and it depends on nothing but the keys of a container */
    ASK_SUPER,      /* the same, and it depends on nothing but a class and its bases */
    ASK_MEMBER,     /* an instance's C member `key`, such as a slot; a method without arguments is called */
    ASK_KINDS
} Question;

typedef struct {
    int question;
    bool plain;             /* compare by type and value when the identity differs */
    Py_ssize_t number;      /* ASK_LENGTH, ASK_TRUTH: expected; ASK_ELEMENT: the index */
    PyObject *object;       /* owned */
    PyObject *key;          /* owned, may be NULL */
    PyObject *expected;     /* owned; mp_null: nothing must be there */
} Fact;

typedef struct Snapshot Snapshot;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *same_value;   /* owned */
    Fact *facts;
    Py_ssize_t count;
    Snapshot *snapshot;     /* owned or NULL; what was seen when all facts held */
    bool bare;              /* no snapshot is wanted */
    unsigned long long full;        /* passes over all facts */
    unsigned long long verified;    /* groups of facts that were asked again since something moved */
} FactTable;

/* table.c */
bool mp_fits(int question, PyObject *object, PyObject *key);
Py_ssize_t mp_builtin_length(PyObject *object);
PyObject *mp_answer(int question, PyObject *object, PyObject *key, Py_ssize_t number, PyObject **owned);
int mp_same_value(PyObject *same_value, PyObject *one, PyObject *other);
int mp_fact_holds(const FactTable *self, const Fact *fact);
int mp_table_check(FactTable *self, Py_ssize_t *failed);

/* draw.c */
PyObject *mp_draw(PyObject *slowly, PyObject *is_ahead, PyObject *arg, PyObject *iterator);
PyObject *mp_drawn(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* snapshot.c */
Snapshot *mp_snapshot_new(FactTable *table, bool *never);
void mp_snapshot_free(Snapshot *snapshot);
int mp_snapshot_check(Snapshot *snapshot, FactTable *table);
PyObject *mp_snapshot_counts(const FactTable *table);

#endif

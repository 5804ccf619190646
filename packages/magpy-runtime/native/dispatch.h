/* A call, a native guard, and the slots that the dispatcher reads: what steps.c and dispatch.c share. */
#ifndef MAGPY_DISPATCH_H
#define MAGPY_DISPATCH_H

#include "facts.h"

#define MAX_REGISTERS 64
#define MAX_KEYWORDS 32
#define MAX_ARGUMENTS 8
#define MAX_EARLY 8

/* An object that a step looks at. */
typedef struct {
    Py_ssize_t number;      /* of a register; -1: `object` */
    PyObject *object;       /* owned or NULL */
} Operand;

/* What a step does. The order is that of magpy_codegen's StepKind. */
typedef enum {
    STEP_POSITIONAL,
    STEP_KEYWORDS,
    STEP_MODES,
    STEP_HELD,
    STEP_IS,
    STEP_PLAIN,
    STEP_SAME,
    STEP_BIND,
    STEP_DIFFERENT,
    STEP_OUTSIDE,
    STEP_TENSORS,
    STEP_TRUE,
    STEP_REST,
    STEP_COMPARE,
    STEP_MORE,
    STEP_KINDS
} StepKind;

/* Questions about the call; those below are asked of objects. */
#define ASK_ARGUMENT 16
#define ASK_KEYWORD 17
#define ASK_CALL 18
#define ASK_NOTHING (-1)

/* What ASK_OTHER is found to be when a guard is made. */
#define ASK_GLOBALS 19
#define ASK_DRAWN 20

/* Ids of objects that an argument must not be: a table with open addressing. Steps share it. */
typedef struct Outside {
    struct Outside *next;
    PyObject *ids;          /* borrowed from a step */
    size_t mask;
    const void *slots[];
} Outside;

typedef struct {
    int kind;
    int question;           /* STEP_REST: whether it is given the call's arguments, too; STEP_COMPARE: Py_LT and the like */
    Py_ssize_t number;      /* what a failure is called */
    Py_ssize_t index;       /* a register's number, or an expected length; STEP_TENSORS: the last register's place */
    Py_ssize_t argument;    /* an argument's or an element's number */
    Operand *operands;      /* `single` where there is only one */
    Operand single;
    Py_ssize_t count;
    const Outside *outside; /* STEP_OUTSIDE */
    PyObject *key;          /* owned or NULL */
    PyObject *expected;     /* owned or NULL */
    PyObject *scratch;      /* owned or NULL; STEP_TENSORS: the arguments, registers' places empty (None) */
    int64_t checked_ns;     /* STEP_TENSORS: when tensors were last checked */
    bool points;            /* STEP_TENSORS: whether an object's first word points to torch's tensor, which can be read ahead */
} Step;

/* How a result is made. */
typedef enum { MAKE_OUTPUT, MAKE_OPERAND, MAKE_TUPLE, MAKE_LIST, MAKE_DICT } MakeKind;

typedef struct Make {
    int kind;
    Operand operand;        /* MAKE_OPERAND; its number alone for MAKE_OUTPUT */
    struct Make *parts;
    Py_ssize_t count;
    PyObject *keys;         /* owned or NULL; a tuple for MAKE_DICT */
} Make;

/* A function that is called on such parts once the graph has run. */
typedef struct {
    PyObject *function;     /* owned */
    Make *args;
    Py_ssize_t count;
} Action;

typedef struct {
    PyObject_HEAD
    Step *steps;
    Py_ssize_t count;
    Py_ssize_t registers;
    Py_ssize_t handed;      /* how many of them are handed on, from the first */
    Outside *outsides;      /* owned */
    PyObject *modes;        /* owned; tuple of pairs: a function without arguments, and what it must give */
    PyObject *held;         /* owned; the table of held facts, or what stands for it */
    PyObject *tensors;      /* owned */
    PyObject *same_value;   /* owned */
    PyObject *strict;       /* owned or NULL */
    bool asks_modes;        /* a step does */
    int early_count;
    Py_ssize_t early[MAX_EARLY];    /* numbers of steps that are tried first, since the last of them failed lately */
    bool direct;            /* running the graph, and the actions, is all that the mock does */
    Operand *inputs;
    Py_ssize_t input_count;
    Action *actions;
    Py_ssize_t action_count;
    Make result;
    Py_ssize_t output_count;
} NativeGuard;

/* What a caller gave. */
typedef struct {
    PyObject *const *args;
    Py_ssize_t count;
    PyObject *names;        /* borrowed or NULL; the keywords' names, whose values follow the arguments */
    PyObject *kwargs;       /* borrowed or NULL; a dictionary, instead of `names` */
    PyObject *keywords[MAX_KEYWORDS];   /* borrowed; values in order, once the names are known to fit */
} Call;

/* steps.c */
extern PyTypeObject mp_NativeGuardType;
PyObject *mp_call_args(const Call *call);
PyObject *mp_call_kwargs(const Call *call);
int mp_guard_call(NativeGuard *self, Call *call, const PyObject *modes, PyObject **registers, Py_ssize_t *failed);
int mp_guard_check(NativeGuard *self, const Call *call, PyObject *const *registers, int held, Py_ssize_t failed);
PyObject *mp_guard_bound(const NativeGuard *self, PyObject *const *registers);

/* guard.c */
int mp_operand_parse(PyObject *entry, uint64_t bound, Operand *operand);
int mp_operands_parse(PyObject *list, uint64_t bound, Operand *single, Operand **operands, Py_ssize_t *count);
void mp_operands_clear(Operand *operands, const Operand *single, Py_ssize_t count);

/* mock.c */
int mp_direct_parse(NativeGuard *self, PyObject *direct, uint64_t bound);
void mp_direct_clear(NativeGuard *self);
int mp_direct_traverse(const NativeGuard *self, visitproc visit, void *arg);
PyObject *mp_guard_run(NativeGuard *self, PyObject *run, PyObject *const *registers, bool *begun);


static inline PyObject *
mp_operand(const Operand *operand, PyObject *const *registers)
{
    return operand->number < 0 ? operand->object : registers[operand->number];
}

static inline void
mp_drop(PyObject **registers, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_XDECREF(registers[i]);
    }
}

/* A record, the records of a callable or a resume point, and what serves a callable's calls. */
typedef struct {
    PyObject_HEAD
    Py_ssize_t hits;
    char plain;             /* running the mock is all that serving a call takes */
    char steady;            /* it leaves torch's modes as they are */
    PyObject *guard;        /* owned or NULL */
    PyObject *mock;         /* owned or NULL */
    PyObject *run;          /* owned or NULL */
    PyObject *boundary;     /* owned or NULL */
    PyObject *native;       /* owned or NULL */
} RecordSlots;

typedef struct {
    PyObject_HEAD
    PyObject *records;      /* owned or NULL; a tuple of records */
} CacheSlots;

typedef struct {
    PyObject_HEAD
    PyObject *cache;        /* owned or NULL */
    PyObject *statistics;   /* owned or NULL */
    PyObject *fresh;        /* owned or NULL; the operation whose outcome nobody holds but the program */
} Dispatcher;

/* A boundary, and where it led. */
#define LIKELY 4

typedef enum { FORM_OTHER, FORM_PUSHED, FORM_TESTED } Form;

typedef struct {
    PyObject_HEAD
    Py_ssize_t taken;
    char sees;
    char steady;
    int form;
    PyObject *ways[2];      /* owned or NULL; where an outcome leads that is pushed, or is false, and one that is true */
} SiteSlots;

typedef struct {
    PyObject_HEAD
    PyObject *point;        /* owned */
    PyObject *cache;        /* owned; the point's */
    Py_ssize_t count;
    const void *likely[LIKELY]; /* records that served behind the boundary, the latest first: addresses to compare with */
} Way;

/* dispatch.c */
extern PyTypeObject mp_DispatcherType, mp_RecordSlotsType, mp_CacheSlotsType;
PyObject *mp_dispatch(PyObject *dispatcher, Call *call);
bool mp_is_plain(const RecordSlots *record, const NativeGuard *native);
PyObject *mp_record_run(RecordSlots *record, NativeGuard *native, PyObject *const *registers, PyObject *bound);
void mp_count_hit(Dispatcher *self);
void mp_move_to_front(CacheSlots *cache, PyObject *records, Py_ssize_t at);
int mp_dispatch_ready(PyObject *module);

/* ways.c */
extern PyTypeObject mp_SiteSlotsType, mp_WayType;
int mp_ways_ready(PyObject *module);

/* chain.c */
PyObject *mp_go_on(Dispatcher *self, PyObject *boundary, PyObject *left, PyObject *modes);
PyObject *mp_dispatcher_go_on(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *mp_take_error(void);
int mp_chain_ready(PyObject *module);

/* twin.c */
extern PyTypeObject mp_TwinSlotsType;
extern PyTypeObject mp_TwinCallType;

#endif

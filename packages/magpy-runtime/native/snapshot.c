/* The state snapshot of a fact table: what was seen when all facts held, so that the next check need only see that
 * nothing moved.
 *
 * Facts are put into groups by what can change their answers at once:
 *
 *   a dictionary    3.11: its version tag. From 3.12 on it is watched. On 3.13.0, where neither sees attributes that
 *                   are stored inline in an instance (CPython gh-125608), such a dictionary is asked every time.
 *   a class         its version tag, which every change to it or to a base of it takes away
 *   a list          where its items lie, how many there are, and each item by identity
 *   anything else   one word in memory: an object's type or its pointer to its dictionary, which neither tags nor
 *                   watchers see, a cell's content, a function's code and defaults
 *
 * Where a group moved its own facts are asked, and if they hold the snapshot goes on from there; where they do not, the
 * table asks all. Facts that fit no group are asked every time; those about tuples never, since tuples do not change.
 *
 * Everything that is looked at is alive: the table owns the objects, and what it expects to find in them. A value that is
 * the same as the expected one, but another object, takes its place. Versions and words are read before the facts are
 * asked, so a change by another thread meanwhile is seen the next time. */
#include "facts.h"

#if PY_VERSION_HEX < 0x030C0000
#  define USES_TAGS 1
#else
#  define USES_TAGS 0
#endif

#define BLOCK 16

/* A dictionary that changes that often is not watched any more: it costs each store more than it saves. */
#define MAX_CHANGES 256

typedef enum {
    GROUP_DICT,
    GROUP_CLASS,
    GROUP_LIST,
    GROUP_WORD,
    GROUP_ASKED     /* every time */
} GroupKind;

/* A word in memory and what it was. */
typedef struct {
    const void *const *at;
    const void *expected;
} Watch;

typedef struct {
    int kind;
    bool dirty;                 /* a watched dictionary changed */
    int changes;                /* how often it did */
    PyObject *object;           /* borrowed from a fact */
    Py_ssize_t first, count;    /* its facts: places in Snapshot.order */
    Py_ssize_t watch;           /* its first watch, in `words` */
    Py_ssize_t element;         /* a list's first watch in `elements` */
    unsigned int version;       /* of a class, 0: unknown */
} Group;

struct Snapshot {
    Group *groups;
    Py_ssize_t group_count;
    Py_ssize_t *order;          /* numbers of facts, group by group */
    Watch *words;               /* always safe to read */
    Py_ssize_t *word_groups;
    Py_ssize_t word_count;
    Watch *elements;            /* safe to read while all words are as they were */
    Py_ssize_t *element_groups;
    Py_ssize_t element_count;
    Py_ssize_t *classes;        /* groups */
    Py_ssize_t class_count;
    Py_ssize_t *asked;          /* groups */
    Py_ssize_t asked_count;
    Py_ssize_t *dirty;          /* groups whose dictionary changed */
    Py_ssize_t dirty_count;
};

/* -- watched dictionaries --------------------------------------------------------------------------------------------- */

#if !USES_TAGS

typedef struct Watcher {
    PyObject *dict;             /* borrowed from the table, which unregisters first */
    Snapshot *snapshot;
    Py_ssize_t group;
    struct Watcher *next;
} Watcher;

static struct {
    int id;                     /* CPython's number for the callback; -1: not asked yet, -2: there is none left */
    Watcher **slots;
    size_t capacity;
    size_t used;
} watchers = {.id = -1};

static inline size_t
watcher_slot(PyObject *dict)
{
    uintptr_t bits = (uintptr_t)dict >> 4;
    return (bits ^ (bits >> 16)) & (watchers.capacity - 1);
}

static int
watcher_event(PyDict_WatchEvent Py_UNUSED(event), PyObject *dict, PyObject *Py_UNUSED(key), PyObject *Py_UNUSED(value))
{
    if (watchers.slots == NULL) {
        return 0;
    }
    for (Watcher *each = watchers.slots[watcher_slot(dict)]; each != NULL; each = each->next) {
        if (each->dict == dict) {
            Snapshot *snapshot = each->snapshot;
            Group *group = &snapshot->groups[each->group];
            if (!group->dirty) {
                group->dirty = true;
                snapshot->dirty[snapshot->dirty_count++] = each->group;
            }
        }
    }
    return 0;
}

static int
watchers_grow(void)
{
    size_t capacity = watchers.capacity > 0 ? watchers.capacity * 2 : 1024, old = watchers.capacity;
    Watcher **slots = PyMem_Calloc(capacity, sizeof(Watcher *)), **before = watchers.slots;
    if (slots == NULL) {
        return -1;
    }
    watchers.slots = slots;
    watchers.capacity = capacity;
    for (size_t i = 0; i < old; i++) {
        for (Watcher *each = before[i], *next; each != NULL; each = next) {
            next = each->next;
            size_t slot = watcher_slot(each->dict);
            each->next = slots[slot];
            slots[slot] = each;
        }
    }
    PyMem_Free(before);
    return 0;
}

/* Watch a dictionary for a group: 1; 0 where that cannot be done. */
static int
watch_dict(Snapshot *snapshot, Py_ssize_t group, PyObject *dict)
{
    if (watchers.id == -1) {
        watchers.id = PyDict_AddWatcher(watcher_event);
        if (watchers.id < 0) {
            PyErr_Clear();
            watchers.id = -2;
        }
    }
    if (watchers.id < 0 || (watchers.used >= watchers.capacity && watchers_grow() < 0)) {
        return 0;
    }
    Watcher *made = PyMem_Malloc(sizeof(Watcher));
    if (made == NULL) {
        return 0;
    }
    if (PyDict_Watch(watchers.id, dict) < 0) {
        PyErr_Clear();
        PyMem_Free(made);
        return 0;
    }
    size_t slot = watcher_slot(dict);
    *made = (Watcher){.dict = dict, .snapshot = snapshot, .group = group, .next = watchers.slots[slot]};
    watchers.slots[slot] = made;
    watchers.used++;
    return 1;
}

static void
unwatch_dict(Snapshot *snapshot, PyObject *dict)
{
    if (watchers.slots == NULL) {
        return;
    }
    bool others = false;
    Watcher **link = &watchers.slots[watcher_slot(dict)];
    while (*link != NULL) {
        Watcher *each = *link;
        if (each->dict == dict && each->snapshot == snapshot) {
            *link = each->next;
            PyMem_Free(each);
            watchers.used--;
            continue;
        }
        others = others || each->dict == dict;
        link = &each->next;
    }
    if (!others && watchers.id >= 0 && PyDict_Unwatch(watchers.id, dict) < 0) {
        PyErr_Clear();
    }
}

/* Whether a watcher sees every change of a dictionary. */
static bool
is_watchable(PyObject *dict)
{
#if PY_VERSION_HEX >= 0x030D0000
    if (Py_Version < 0x030D01F0 && ((PyDictObject *)dict)->ma_values != NULL) {
        return false;
    }
#endif
    return PyDict_Check(dict);
}

#endif

/* -- groups ----------------------------------------------------------------------------------------------------------- */

/* Where an object keeps the pointer to its dictionary, NULL where that is not one fixed place. */
static PyObject **
dict_slot(PyObject *object, PyObject *dict)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject **slot = NULL;
    if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT) {
        slot = (PyObject **)object - 3;
    }
    else if (type->tp_dictoffset > 0) {
        slot = (PyObject **)((char *)object + type->tp_dictoffset);
    }
    return slot != NULL && *slot == dict ? slot : NULL;
}

/* The word that a fact is about, NULL where there is none. */
static const void *const *
fact_word(const Fact *fact)
{
    PyObject *object = fact->object;
    switch (fact->question) {
    case ASK_TYPE:
        return (const void *const *)&object->ob_type;
    case ASK_DICT:
        return (const void *const *)dict_slot(object, fact->expected);
    case ASK_CELL:
        return (const void *const *)&((PyCellObject *)object)->ob_ref;
    case ASK_CODE:
        return (const void *const *)&((PyFunctionObject *)object)->func_code;
    case ASK_DEFAULTS:
        return (const void *const *)&((PyFunctionObject *)object)->func_defaults;
    case ASK_KWDEFAULTS:
        return (const void *const *)&((PyFunctionObject *)object)->func_kwdefaults;
    default:
        return NULL;
    }
}

/* The kind of group that a fact belongs to; -1 where its answer never changes. */
static int
group_kind(const Fact *fact)
{
    PyObject *object = fact->object;
    switch (fact->question) {
    case ASK_ITEM:
        return GROUP_DICT;
    case ASK_LENGTH:
    case ASK_TRUTH:
        if (PyList_Check(object) && fact->question == ASK_LENGTH) {
            return GROUP_LIST;
        }
        return PyDict_Check(object) ? GROUP_DICT : PyTuple_Check(object) ? -1 : GROUP_ASKED;
    case ASK_ELEMENT:
        return PyList_Check(object) ? GROUP_LIST : -1;
    case ASK_CLASS:
    case ASK_SUPER:
        return GROUP_CLASS;
    case ASK_KEYS:
        return PyDict_CheckExact(object) ? GROUP_DICT : GROUP_ASKED;
    default:
        return fact_word(fact) != NULL ? GROUP_WORD : GROUP_ASKED;
    }
}

/* The version of a class, 0 where it has none now. */
static unsigned int
class_version(PyObject *object)
{
    PyTypeObject *type = (PyTypeObject *)object;
#if PY_VERSION_HEX < 0x030D0000
    if (!PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG)) {
        return 0;
    }
#endif
    return type->tp_version_tag;
}

/* Ask a group's facts again, and go on from what is there if they hold: 1; 0: one does not; -1: an exception. */
static int
verify(Snapshot *snapshot, FactTable *table, Py_ssize_t number)
{
    Group *group = &snapshot->groups[number];
    PyObject *object = group->object;
    const void *word = NULL, *items = NULL;
    Py_ssize_t size = 0;
    unsigned int version = 0;
    bool known = true;
    if (group->kind == GROUP_CLASS) {
        version = class_version(object);
    }
    else if (group->kind == GROUP_LIST) {
        items = ((PyListObject *)object)->ob_item;
        size = PyList_GET_SIZE(object);
    }
    else if (group->kind == GROUP_WORD || (group->kind == GROUP_DICT && USES_TAGS)) {
        word = *snapshot->words[group->watch].at;
    }
    table->verified++;
    for (Py_ssize_t i = group->first; i < group->first + group->count; i++) {
        Fact *fact = &table->facts[snapshot->order[i]];
        int held = mp_fact_holds(table, fact);
        if (held <= 0) {
            return held;
        }
        bool counted = fact->question == ASK_LENGTH || fact->question == ASK_TRUTH;
        if (fact->plain && !counted && (group->kind == GROUP_WORD || group->kind == GROUP_LIST)) {
            /* Words are compared by identity, and only what the table owns keeps its address. */
            PyObject *owned = NULL;
            PyObject *found = mp_answer(fact->question, object, fact->key, fact->number, &owned);
            if (found != NULL && Py_TYPE(found) == Py_TYPE(fact->expected) && found != fact->expected) {
                Py_INCREF(found);
                int same = mp_same_value(table->same_value, found, fact->expected);
                if (same > 0) {
                    Py_SETREF(fact->expected, found);
                }
                else {
                    Py_DECREF(found);
                    if (same < 0) {
                        return -1;
                    }
                    known = false;
                }
            }
        }
    }
    switch (group->kind) {
    case GROUP_CLASS:
        group->version = version;
        break;
    case GROUP_DICT:
    case GROUP_WORD:
        if (word != NULL || group->kind == GROUP_WORD) {
            snapshot->words[group->watch].expected = known ? word : (const void *)snapshot;
        }
        break;
    case GROUP_LIST: {
        snapshot->words[group->watch].expected = items;
        snapshot->words[group->watch + 1].expected = (const void *)size;
        Py_ssize_t element = group->element;
        for (Py_ssize_t i = group->first; i < group->first + group->count; i++) {
            const Fact *fact = &table->facts[snapshot->order[i]];
            if (fact->question == ASK_ELEMENT) {
                snapshot->elements[element].at = (const void *const *)items + fact->number;
                snapshot->elements[element++].expected = fact->expected;
                if (fact->number >= size) {
                    snapshot->words[group->watch].expected = snapshot; /* it shrank meanwhile: ask again */
                }
            }
        }
        break;
    }
    default:
        break;
    }
    return 1;
}

/* Whether nothing moved, or what moved left all facts as they are: 1; 0: there are doubts; -1: an exception. */
int
mp_snapshot_check(Snapshot *snapshot, FactTable *table)
{
    const Watch *words = snapshot->words;
    Py_ssize_t count = snapshot->word_count, i = 0;
    while (i < count) {
        /* Without a branch for each, so that many are fetched at once; the last ones of a block show where it differs. */
        for (; i + BLOCK <= count; i += BLOCK) {
            uintptr_t moved = 0;
            for (Py_ssize_t k = i; k < i + BLOCK; k++) {
                moved |= (uintptr_t)*words[k].at ^ (uintptr_t)words[k].expected;
            }
            if (moved != 0) {
                break;
            }
        }
        Py_ssize_t end = i + BLOCK < count ? i + BLOCK : count;
        for (; i < end; i++) {
            if (*words[i].at != words[i].expected) {
                int held = verify(snapshot, table, snapshot->word_groups[i]);
                if (held <= 0) {
                    return held;
                }
            }
        }
    }
    while (snapshot->dirty_count > 0) {
        Py_ssize_t number = snapshot->dirty[--snapshot->dirty_count];
        Group *group = &snapshot->groups[number];
        group->dirty = false;
        int held = verify(snapshot, table, number);
        if (held <= 0) {
            if (!group->dirty) {
                group->dirty = true;
                snapshot->dirty[snapshot->dirty_count++] = number;
            }
            return held;
        }
#if !USES_TAGS
        if (++group->changes >= MAX_CHANGES && !group->dirty) {
            unwatch_dict(snapshot, group->object);
            group->kind = GROUP_ASKED;
            snapshot->asked[snapshot->asked_count++] = number;
        }
#endif
    }
    for (i = 0; i < snapshot->class_count; i++) {
        Group *group = &snapshot->groups[snapshot->classes[i]];
        if (group->version == 0 || class_version(group->object) != group->version) {
            int held = verify(snapshot, table, snapshot->classes[i]);
            if (held <= 0) {
                return held;
            }
        }
    }
    for (i = 0; i < snapshot->element_count; i++) {
        const Watch *element = &snapshot->elements[i];
        Group *group = &snapshot->groups[snapshot->element_groups[i]];
        const Watch *list = &words[group->watch];
        /* The list may have moved since its words were looked at: facts that were asked can run code of a key's. */
        if (*list[0].at != list[0].expected || *list[1].at != list[1].expected || *element->at != element->expected) {
            int held = verify(snapshot, table, snapshot->element_groups[i]);
            if (held <= 0) {
                return held;
            }
        }
    }
    for (i = 0; i < snapshot->asked_count; i++) {
        const Group *group = &snapshot->groups[snapshot->asked[i]];
        for (Py_ssize_t k = group->first; k < group->first + group->count; k++) {
            int held = mp_fact_holds(table, &table->facts[snapshot->order[k]]);
            if (held <= 0) {
                return held;
            }
        }
    }
    return 1;
}

/* The group of an object among those of a kind, by open addressing; a place for it where it is new. */
static Py_ssize_t *
find_group(Py_ssize_t *slots, size_t mask, const Group *groups, int kind, PyObject *object)
{
    uintptr_t bits = (uintptr_t)object >> 4;
    size_t at = (bits ^ (bits >> 16)) & mask;
    while (slots[at] >= 0 && !(groups[slots[at]].object == object && groups[slots[at]].kind == kind)) {
        at = (at + 1) & mask;
    }
    return &slots[at];
}

static int
build(Snapshot *self, FactTable *table)
{
    Py_ssize_t count = table->count;
    size_t room = count > 0 ? (size_t)count : 1, capacity = 8;
    while (capacity < room * 2) {
        capacity *= 2;
    }
    Py_ssize_t *slots = PyMem_Malloc(capacity * sizeof(Py_ssize_t));
    Py_ssize_t *group_of = PyMem_Malloc(room * sizeof(Py_ssize_t));
    self->groups = PyMem_Calloc(room, sizeof(Group));
    self->order = PyMem_Calloc(room, sizeof(Py_ssize_t));
    if (slots == NULL || group_of == NULL || self->groups == NULL || self->order == NULL) {
        PyMem_Free(slots);
        PyMem_Free(group_of);
        return -1;
    }
    memset(slots, 0xFF, capacity * sizeof(Py_ssize_t));
    Py_ssize_t words = 0, elements = 0, classes = 0, asked = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        const Fact *fact = &table->facts[i];
        int kind = group_kind(fact);
        group_of[i] = -1;
        if (kind < 0) {
            continue;
        }
        Py_ssize_t number = self->group_count, *found = NULL;
        if (kind == GROUP_DICT || kind == GROUP_CLASS || kind == GROUP_LIST) {
            found = find_group(slots, capacity - 1, self->groups, kind, fact->object);
            if (*found >= 0) {
                number = *found;
            }
            else {
                *found = number;
            }
        }
        if (number == self->group_count) {
            self->group_count++;
            self->groups[number] = (Group){.kind = kind, .object = fact->object};
            words += kind == GROUP_LIST ? 2 : kind == GROUP_WORD || (kind == GROUP_DICT && USES_TAGS);
            classes += kind == GROUP_CLASS;
            asked += kind == GROUP_ASKED;
        }
        elements += kind == GROUP_LIST && fact->question == ASK_ELEMENT;
        self->groups[number].count++;
        group_of[i] = number;
    }
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; i < self->group_count; i++) {
        self->groups[i].first = at;
        at += self->groups[i].count;
        self->groups[i].count = 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (group_of[i] >= 0) {
            Group *group = &self->groups[group_of[i]];
            self->order[group->first + group->count++] = i;
        }
    }
    PyMem_Free(slots);
    PyMem_Free(group_of);
    self->words = PyMem_Calloc((size_t)words + 1, sizeof(Watch));
    self->word_groups = PyMem_Calloc((size_t)words + 1, sizeof(Py_ssize_t));
    self->elements = PyMem_Calloc((size_t)elements + 1, sizeof(Watch));
    self->element_groups = PyMem_Calloc((size_t)elements + 1, sizeof(Py_ssize_t));
    self->classes = PyMem_Calloc((size_t)classes + 1, sizeof(Py_ssize_t));
    self->asked = PyMem_Calloc((size_t)(asked + self->group_count) + 1, sizeof(Py_ssize_t));
    self->dirty = PyMem_Calloc((size_t)self->group_count + 1, sizeof(Py_ssize_t));
    if (self->words == NULL || self->word_groups == NULL || self->elements == NULL || self->element_groups == NULL ||
        self->classes == NULL || self->asked == NULL || self->dirty == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < self->group_count; i++) {
        Group *group = &self->groups[i];
        PyObject *object = group->object;
        group->watch = self->word_count;
        switch (group->kind) {
        case GROUP_DICT:
#if USES_TAGS
            self->word_groups[self->word_count] = i;
            self->words[self->word_count++].at = (const void *const *)&((PyDictObject *)object)->ma_version_tag;
#else
            if (!is_watchable(object) || !watch_dict(self, i, object)) {
                group->kind = GROUP_ASKED;
                self->asked[self->asked_count++] = i;
            }
#endif
            break;
        case GROUP_CLASS:
            self->classes[self->class_count++] = i;
            break;
        case GROUP_LIST:
            self->word_groups[self->word_count] = i;
            self->words[self->word_count++].at = (const void *const *)&((PyListObject *)object)->ob_item;
            self->word_groups[self->word_count] = i;
            self->words[self->word_count++].at = (const void *const *)&((PyVarObject *)object)->ob_size;
            group->element = self->element_count;
            for (Py_ssize_t k = group->first; k < group->first + group->count; k++) {
                if (table->facts[self->order[k]].question == ASK_ELEMENT) {
                    self->element_groups[self->element_count++] = i;
                }
            }
            break;
        case GROUP_WORD:
            self->word_groups[self->word_count] = i;
            self->words[self->word_count++].at = fact_word(&table->facts[self->order[group->first]]);
            break;
        default:
            self->asked[self->asked_count++] = i;
            break;
        }
    }
    return 0;
}

/* What is there now, where all facts hold. NULL where something changed meanwhile, or where there can never be one. */
Snapshot *
mp_snapshot_new(FactTable *table, bool *never)
{
    Snapshot *self = sizeof(void *) == sizeof(uint64_t) ? PyMem_Calloc(1, sizeof(Snapshot)) : NULL;
    if (self == NULL || build(self, table) < 0) {
        mp_snapshot_free(self);
        *never = true;
        return NULL;
    }
    unsigned long long verified = table->verified;
    int held = 1;
    for (Py_ssize_t i = 0; held > 0 && i < self->group_count; i++) {
        held = self->groups[i].kind == GROUP_ASKED ? 1 : verify(self, table, i);
    }
    table->verified = verified;
    if (held <= 0) {
        mp_snapshot_free(self);
        *never = held < 0;
        PyErr_Clear();
        return NULL;
    }
    return self;
}

void
mp_snapshot_free(Snapshot *self)
{
    if (self == NULL) {
        return;
    }
#if !USES_TAGS
    for (Py_ssize_t i = 0; i < self->group_count; i++) {
        if (self->groups[i].object != NULL && PyDict_Check(self->groups[i].object)) {
            unwatch_dict(self, self->groups[i].object);
        }
    }
#endif
    PyMem_Free(self->groups);
    PyMem_Free(self->order);
    PyMem_Free(self->words);
    PyMem_Free(self->word_groups);
    PyMem_Free(self->elements);
    PyMem_Free(self->element_groups);
    PyMem_Free(self->classes);
    PyMem_Free(self->asked);
    PyMem_Free(self->dirty);
    PyMem_Free(self);
}

PyObject *
mp_snapshot_counts(const FactTable *table)
{
    const Snapshot *snapshot = table->snapshot;
    Py_ssize_t watched = 0, asked = 0;
    for (Py_ssize_t i = 0; snapshot != NULL && i < snapshot->group_count; i++) {
        const Group *group = &snapshot->groups[i];
        watched += group->kind == GROUP_DICT;
        asked += group->kind == GROUP_ASKED ? group->count : 0;
    }
    return Py_BuildValue("{s:K,s:K,s:n,s:n,s:n,s:n,s:n}", "full", table->full, "verified", table->verified,
                         "dicts", watched, "words", snapshot != NULL ? snapshot->word_count : 0,
                         "classes", snapshot != NULL ? snapshot->class_count : 0,
                         "elements", snapshot != NULL ? snapshot->element_count : 0, "asked", asked);
}

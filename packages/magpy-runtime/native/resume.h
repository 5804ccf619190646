/* Frames that are rebuilt: what resume.c and below.c share. */
#ifndef MAGPY_RESUME_H
#define MAGPY_RESUME_H

#include "capture.h"

/* One frame to be rebuilt; its references are owned. Those to its values go as soon as the frame has them. */
typedef struct {
    PyFunctionObject *function;
    PyCodeObject *code;
    PyObject *locals, *stack;   /* tuples */
    int start, at;              /* code units */
    int room;                   /* values that are pushed before it goes on at `start` */
} Rebuilt;

/* A call below suspended frames. */
typedef struct {
    PyObject *function, *args, *kwargs;     /* borrowed; kwargs may be NULL */
} Below;

/* What is being resumed. */
typedef struct {
    Rebuilt *frames;
    Py_ssize_t count;
    PyObject *exception;        /* borrowed or NULL */
    Recorder *recorder;         /* borrowed or NULL */
    const Below *below;         /* what is called below the frames, which do not go on; or NULL */
} Resumption;

/* resume.c */
PyObject *mp_resume_level(Resumption *resumption, Py_ssize_t level);
int mp_read_frames(Resumption *resumption, PyObject *sequence);
void mp_release_frames(Resumption *resumption);
int mp_check_recorder(Recorder *recorder);

/* below.c */
Frame *mp_skip_hidden(PyThreadState *tstate);
PyObject *mp_wait_below(PyThreadState *tstate, Frame *frame, Resumption *resumption, Py_ssize_t level);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leat/status.h - what a call returned. A call that failed did not happen.
 *
 * This is one of two planes. A *status* says whether a call did what it was asked. An *outcome*
 * (leat/leat.h) says how a query that was accepted ended.
 */
#ifndef LEAT_STATUS_H
#define LEAT_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* Zero or positive: keep going. Negative: the operation did not happen. Values never change. */
enum leat_status {
    LEAT_OK = 0,
    LEAT_AGAIN = 1,               /* nothing to do or no room right now; never logged */
    LEAT_TIMEOUT = 2,             /* the wait ended before anything happened */
    LEAT_ERR_PROTO = -1,          /* bytes from a peer or a file are malformed */
    LEAT_ERR_SYS = -2,            /* a system call failed; the error text names it */
    LEAT_ERR_NOMEM = -3,          /* memory, an arena or a pool is exhausted */
    LEAT_ERR_DEVICE = -4,         /* a vendor library (oneDNN, ONNX Runtime) refused */
    LEAT_ERR_INVALID = -5,        /* an argument is out of its stated range */
    LEAT_ERR_NOT_FOUND = -6,      /* no application, model or file of that name */
    LEAT_ERR_EXISTS = -7,         /* the name is taken */
    LEAT_ERR_UNSUPPORTED = -8,    /* well formed, but not something this build can do */
    LEAT_ERR_ACCESS = -9,         /* the peer or the file's mode does not allow it */
    LEAT_ERR_LIMIT = -10,         /* a configured limit or quota is reached */
    LEAT_ERR_VERSION = -11,       /* the two sides speak no common protocol version */
    LEAT_ERR_DISCONNECTED = -12,  /* the daemon is gone; leat_reconnect may help */
    LEAT_ERR_SHAPE = -13,         /* wrong tensor type, rank, size or offset */
    LEAT_ERR_BUSY = -14,          /* in use: finish or release first */
    LEAT_ERR_CONFIG = -15,        /* a configuration file is wrong; the text has line and column */
};

#define LEAT_STATUS_MIN (-15)
#define LEAT_STATUS_MAX 2

#if defined(__GNUC__)
#define LEAT_MUST_CHECK __attribute__((warn_unused_result))
#define LEAT_PUBLIC     __attribute__((visibility("default")))
#else
#define LEAT_MUST_CHECK
#define LEAT_PUBLIC
#endif

/* A short constant text, such as "no application, model or file of that name". Any thread. */
LEAT_PUBLIC const char *leat_status_text(enum leat_status status);

/*
 * Why the last failing call on this thread failed, with its numbers; "" if none did yet. The text
 * stays valid until the next failing call on the same thread.
 */
LEAT_PUBLIC const char *leat_error_text(void);

#ifdef __cplusplus
}
#endif
#endif /* LEAT_STATUS_H */

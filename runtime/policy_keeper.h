/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/policy_keeper.h - sees to it that applications have the policy that their load asks for.
 *
 * Role       An application's first policy is given, kept or made before the application is served. From then on
 *            a thread looks once a second at what variants take by now and how unevenly queries arrive. Where that has been
 *            another matter than the policy was made for, three times running, it makes a new one and has the
 *            dispatcher exchange it between two decisions. The load itself rarely needs anything new: a policy has
 *            all loads that the workers can carry, and some beyond.
 * Shares     An application counts on all workers that serve it alone. Where several are busy that have none, each whose selector goes by the number of
 *            workers may count on its share of the others (sched/share.h). Its selector is told at once, and a policy of its own is made anew for that many.
 *            The first one is for all workers, and is what is kept.
 * Files      A policy from a file is not replaced. In what it is not for what is seen, three times running or when it was read,
 *            is in keeping.trouble, and logged once of each matter (runtime/policy_fit.h).
 * Failure    What cannot be made, or exchanged, is tried again a second later, then after twice as long each time, up to a minute.
 *            Why is in keeping.trouble, and logged when the reason is a new one.
 * Threads    equip on the thread that builds the application; start and stop as for the daemon; set on the server's.
 */
#ifndef LEAT_RUNTIME_POLICY_KEEPER_H
#define LEAT_RUNTIME_POLICY_KEEPER_H

#include "runtime/daemon_private.h"

/*
 * Says how many workers an application may count on that nobody can see yet: as many as that whose place it takes, or all, until
 * its load has been seen. Mutex held.
 */
void leat_policy_keeper_begin(const struct leat_daemon *daemon, struct leat_application *app);

/*
 * Initialises the selector of an application that is not served yet, whose models are bound, with the policy of the options, or one
 * made for it where they have none, if it is one that follows a policy. Slow, for that; mutex not held.
 */
LEAT_MUST_CHECK enum leat_status leat_policy_keeper_equip(const struct leat_daemon *daemon, struct leat_application *app,
                                                          const struct leat_application_options *options);

/*
 * Makes the application's policy anew, of what is known now, and has it exchanged. Not on the server's thread; mutex held,
 * released while waiting. LEAT_ERR_INVALID: it follows none, or one from a file; LEAT_ERR_BUSY: it keeps the one that it has.
 */
LEAT_MUST_CHECK enum leat_status leat_policy_keeper_refresh(struct leat_daemon *daemon, const char *name);

/* The dispatcher has exchanged a policy, or could not; the context is the daemon. */
void leat_policy_keeper_set(void *context, struct leat_policy_change *change);

LEAT_MUST_CHECK enum leat_status leat_policy_keeper_start(struct leat_daemon *daemon);
void leat_policy_keeper_stop(struct leat_daemon *daemon); /* waits for its thread, if it runs */
void leat_policy_keeper_destroy(struct leat_policy_keeper *keeper); /* after the dispatcher; accepts NULL */

#endif /* LEAT_RUNTIME_POLICY_KEEPER_H */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc/doorbell.h and the session's flow as a model: one sleeper (the dispatcher), two wakers (clients).
 *
 * Store buffers are modelled: a plain store goes to a one-place buffer of its process and reaches memory at any later
 * moment, or at a fence. That is what lets "I sleep" and "I look" pass each other, as on x86.
 *
 *   spin -run -DFENCES=1 doorbell.pml    no invalid end state: nobody sleeps while a message waits
 *   spin -run -DFENCES=0 doorbell.pml    finds the lost wake-up: the model can see what it is there for
 */
#ifndef FENCES
#define FENCES 1
#endif
#define WAKERS   2
#define MESSAGES 2

byte published[WAKERS];        /* memory: messages published by each waker */
bit asleep = 0;                /* memory: the bell */
chan event = [1] of { bit };   /* the eventfd: a wake-up is kept until it is taken */
byte taken[WAKERS];

/* The sleeper's own view: its store to `asleep` may still be in its buffer. */
bit buffered = 0, buffered_value = 0;

inline flush_sleeper() {
    if
    :: buffered -> asleep = buffered_value; buffered = 0
    :: else
    fi
}

/* The buffer drains by itself at any moment. */
active proctype memory_of_sleeper() {
end:
    do
    :: atomic { buffered -> asleep = buffered_value; buffered = 0 }
    od
}

active proctype sleeper() {
    byte w;
    bit found;
    do
    :: (taken[0] == MESSAGES && taken[1] == MESSAGES) -> break
    :: else ->
        /* B0, B1: announce, fence, look */
        atomic { flush_sleeper(); buffered = 1; buffered_value = 1 };
#if FENCES
        atomic { flush_sleeper() };
#endif
        found = 0;
        w = 0;
        do
        :: w < WAKERS ->
            if
            :: published[w] > taken[w] -> taken[w]++; found = 1
            :: else
            fi;
            w++
        :: else -> break
        od;
        if
        :: found -> skip
        :: else -> event ? _   /* sleeps; for ever if no wake-up comes: an invalid end state */
        fi;
        /* withdraw */
        atomic { flush_sleeper(); buffered = 1; buffered_value = 0 }
    od
}

/* A waker's store of the message may also be late: without its fence it can reach memory after the look at the bell. */
proctype waker(byte me) {
    byte sent = 0;
    bit old;
    do
    :: sent < MESSAGES ->
        /* B2: with the fence the message is in memory before the bell is looked at; without, either order */
#if FENCES
        atomic { published[me]++ };
        atomic { old = asleep; if :: asleep -> asleep = 0 :: else fi };
#else
        if
        :: atomic { published[me]++ };
           atomic { old = asleep; if :: asleep -> asleep = 0 :: else fi }
        :: atomic { old = asleep; if :: asleep -> asleep = 0 :: else fi };
           atomic { published[me]++ }
        fi;
#endif
        if
        :: old -> atomic { if :: full(event) -> skip :: nfull(event) -> event ! 1 fi } /* an eventfd only counts up */
        :: else
        fi;
        sent++
    :: else -> break
    od
}

init {
    atomic { run waker(0); run waker(1) }
}

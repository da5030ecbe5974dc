/* stopper.h - the state of a callback that counts its calls and stops at one of them. */
#ifndef TEST_STOPPER_H
#define TEST_STOPPER_H

typedef struct stopper {
    int calls, stop_at;
} stopper;

#endif

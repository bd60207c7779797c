#include <stdlib.h>
#include <string.h>

#include "fake.h"

typedef struct waiter {
  struct waiter *next;
  PJRT_Event_OnReadyCallback callback;
  void *argument;
} waiter;

struct fake_state {
  atomic_int references;
  pthread_mutex_t lock;
  pthread_cond_t wake;
  bool ready;
  PJRT_Error_Code code;
  char message[256];
  waiter *waiters;
};

struct PJRT_Event {
  fake_state *state;
};

fake_state *fake_state_new(void) {
  fake_state *state = calloc(1, sizeof *state);
  if (!state) {
    abort();
  }
  atomic_init(&state->references, 1);
  pthread_mutex_init(&state->lock, NULL);
  pthread_cond_init(&state->wake, NULL);
  return state;
}

fake_state *fake_state_ref(fake_state *state) {
  atomic_fetch_add(&state->references, 1);
  return state;
}

void fake_state_unref(fake_state *state) {
  if (atomic_fetch_sub(&state->references, 1) == 1) {
    pthread_mutex_destroy(&state->lock);
    pthread_cond_destroy(&state->wake);
    free(state);
  }
}

static PJRT_Error *error_of(fake_state *state) {
  return state->code ? fake_error(state->code, "%s", state->message) : NULL;
}

void fake_state_finish(fake_state *state, PJRT_Error_Code code, const char *message) {
  pthread_mutex_lock(&state->lock);
  state->ready = true;
  state->code = code;
  if (message) {
    strncpy(state->message, message, sizeof state->message - 1);
  }
  waiter *waiters = state->waiters;
  state->waiters = NULL;
  pthread_cond_broadcast(&state->wake);
  pthread_mutex_unlock(&state->lock);
  while (waiters) {
    waiter *one = waiters;
    waiters = one->next;
    one->callback(error_of(state), one->argument);
    free(one);
  }
}

void fake_state_await(fake_state *state) {
  pthread_mutex_lock(&state->lock);
  while (!state->ready) {
    pthread_cond_wait(&state->wake, &state->lock);
  }
  pthread_mutex_unlock(&state->lock);
}

bool fake_state_ready(fake_state *state) {
  pthread_mutex_lock(&state->lock);
  bool ready = state->ready;
  pthread_mutex_unlock(&state->lock);
  return ready;
}

PJRT_Error_Code fake_state_code(fake_state *state) {
  pthread_mutex_lock(&state->lock);
  PJRT_Error_Code code = state->code;
  pthread_mutex_unlock(&state->lock);
  return code;
}

PJRT_Error *fake_state_error(fake_state *state) {
  pthread_mutex_lock(&state->lock);
  PJRT_Error *error = error_of(state);
  pthread_mutex_unlock(&state->lock);
  return error;
}

PJRT_Event *fake_event_new(fake_state *state) {
  PJRT_Event *event = malloc(sizeof *event);
  if (!event) {
    abort();
  }
  event->state = fake_state_ref(state);
  atomic_fetch_add(&fake_count.events, 1);
  return event;
}

PJRT_Error *fake_PJRT_Event_Destroy(PJRT_Event_Destroy_Args *args) {
  if (args->event) {
    fake_state_unref(args->event->state);
    free(args->event);
    atomic_fetch_sub(&fake_count.events, 1);
  }
  return fake_enter(FAKE_PJRT_Event_Destroy);
}

PJRT_Error *fake_PJRT_Event_IsReady(PJRT_Event_IsReady_Args *args) {
  ENTER(PJRT_Event_IsReady);
  args->is_ready = fake_state_ready(args->event->state);
  return NULL;
}

PJRT_Error *fake_PJRT_Event_Error(PJRT_Event_Error_Args *args) {
  ENTER(PJRT_Event_Error);
  return fake_state_error(args->event->state);
}

PJRT_Error *fake_PJRT_Event_Await(PJRT_Event_Await_Args *args) {
  ENTER(PJRT_Event_Await);
  fake_state_await(args->event->state);
  return fake_state_error(args->event->state);
}

PJRT_Error *fake_PJRT_Event_OnReady(PJRT_Event_OnReady_Args *args) {
  ENTER(PJRT_Event_OnReady);
  fake_state *state = args->event->state;
  pthread_mutex_lock(&state->lock);
  if (!state->ready) {
    waiter *one = malloc(sizeof *one);
    if (!one) {
      abort();
    }
    *one = (waiter){.next = state->waiters, .callback = args->callback, .argument = args->user_arg};
    state->waiters = one;
    pthread_mutex_unlock(&state->lock);
    return NULL;
  }
  pthread_mutex_unlock(&state->lock);
  args->callback(fake_state_error(state), args->user_arg);
  return NULL;
}

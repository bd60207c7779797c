#include <stdlib.h>

#include "pjrt/internal.h"

static PJRT_Event *unwrap(tt_pjrt_event *event) { return (PJRT_Event *)event; }

static tt_status *await(const PJRT_Api *api, PJRT_Event *event, const char *what) {
  PJRT_Event_Await_Args args = {.struct_size = PJRT_Event_Await_Args_STRUCT_SIZE, .event = event};
  return tt_pjrt_take_error(api, api->PJRT_Event_Await(&args), what);
}

void tt_pjrt_destroy_event(const PJRT_Api *api, PJRT_Event *event) {
  if (event) {
    PJRT_Event_Destroy_Args args = {.struct_size = PJRT_Event_Destroy_Args_STRUCT_SIZE, .event = event};
    tt_pjrt_drop_error(api, api->PJRT_Event_Destroy(&args));
  }
}

tt_status *tt_pjrt_finish_event(const PJRT_Api *api, PJRT_Event *event, const char *what) {
  tt_status *status = event ? await(api, event, what) : NULL;
  tt_pjrt_destroy_event(api, event);
  return status;
}

tt_status *tt_pjrt_event_await(tt_pjrt_client *client, tt_pjrt_event *event) {
  return event ? await(client->api, unwrap(event), "await") : tt_error(TT_ERR_INTERNAL, "await of no event");
}

tt_status *tt_pjrt_event_is_ready(tt_pjrt_client *client, tt_pjrt_event *event, bool *out_ready) {
  *out_ready = false;
  if (!event) {
    return tt_error(TT_ERR_INTERNAL, "is_ready of no event");
  }
  PJRT_Event_IsReady_Args args = {.struct_size = PJRT_Event_IsReady_Args_STRUCT_SIZE, .event = unwrap(event)};
  TT_PJRT_TRY(client->api, client->api->PJRT_Event_IsReady(&args), "event query");
  *out_ready = args.is_ready;
  return NULL;
}

typedef struct waiter {
  const PJRT_Api *api;
  void (*callback)(void *context, tt_status *status);
  void *context;
} waiter;

static void on_ready(PJRT_Error *error, void *argument) {
  waiter own = *(waiter *)argument;
  free(argument);
  own.callback(own.context, tt_pjrt_take_error(own.api, error, "execute"));
}

tt_status *tt_pjrt_event_on_ready(tt_pjrt_client *client, tt_pjrt_event *event,
                                  void (*callback)(void *context, tt_status *status), void *context) {
  if (!event) {
    return tt_error(TT_ERR_INTERNAL, "on_ready of no event");
  }
  waiter *one = malloc(sizeof *one);
  if (!one) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  *one = (waiter){.api = client->api, .callback = callback, .context = context};
  PJRT_Event_OnReady_Args args = {.struct_size = PJRT_Event_OnReady_Args_STRUCT_SIZE,
                                  .event = unwrap(event),
                                  .callback = on_ready,
                                  .user_arg = one};
  tt_status *status = tt_pjrt_take_error(client->api, client->api->PJRT_Event_OnReady(&args), "event callback");
  if (status) {
    free(one);  // a plugin that refuses doesn't call
  }
  return status;
}

void tt_pjrt_event_free(tt_pjrt_client *client, tt_pjrt_event *event) {
  tt_pjrt_destroy_event(client->api, unwrap(event));
}

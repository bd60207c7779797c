// What this library adds to an execution: the plugin named first is timed through tt_pjrt_execute() and directly.
// usage: execute_bench PLUGIN.so [arguments]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pjrt/internal.h"

enum { ROUNDS = 100000, MOST = 256 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void need(tt_status *status) {
  if (status) {
    fprintf(stderr, "%s\n", tt_status_message(status));
    exit(1);
  }
}

static double time_ours(tt_pjrt_client *client, tt_pjrt_executable *executable, tt_pjrt_buffer **arguments,
                        const bool *donate, int count) {
  double start = now();
  for (int i = 0; i < ROUNDS; i++) {
    tt_pjrt_buffer *result;
    need(tt_pjrt_execute(client, executable, 0, arguments, donate, count, &result, NULL));
    tt_pjrt_buffer_free(client, result);
  }
  return (now() - start) / ROUNDS;
}

static double time_direct(tt_pjrt_client *client, tt_pjrt_executable *executable, tt_pjrt_buffer **arguments,
                          const int64_t *kept, int count) {
  double start = now();
  for (int i = 0; i < ROUNDS; i++) {
    PJRT_Buffer *result, **results = &result;
    PJRT_Buffer *const *list = (PJRT_Buffer *const *)arguments;
    PJRT_ExecuteOptions options = {.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE,
                                   .non_donatable_input_indices = kept,
                                   .num_non_donatable_input_indices = kept ? (size_t)count : 0};
    PJRT_LoadedExecutable_Execute_Args args = {.struct_size = PJRT_LoadedExecutable_Execute_Args_STRUCT_SIZE,
                                               .executable = executable->loaded,
                                               .options = &options,
                                               .argument_lists = &list,
                                               .num_devices = 1,
                                               .num_args = (size_t)count,
                                               .output_lists = &results};
    need(tt_pjrt_take_error(client->api, client->api->PJRT_LoadedExecutable_Execute(&args), "execute"));
    PJRT_Buffer_Destroy_Args destroy = {.struct_size = PJRT_Buffer_Destroy_Args_STRUCT_SIZE, .buffer = result};
    client->api->PJRT_Buffer_Destroy(&destroy);
  }
  return (now() - start) / ROUNDS;
}

int main(int argc, char **argv) {
  int count = argc > 2 ? atoi(argv[2]) : 2;
  if (argc < 2 || count < 1 || count > MOST) {
    fprintf(stderr, "usage: %s PLUGIN.so [arguments, 1 to %d]\n", argv[0], MOST);
    return 1;
  }
  tt_pjrt_plugin *plugin;
  tt_pjrt_client *client;
  need(tt_pjrt_plugin_load(argv[1], &plugin));
  need(tt_pjrt_client_create(plugin, NULL, &client));
  for (int aliased = 0; aliased < 2; aliased++) {
    static char text[MOST * 64 + 200];
    int at =
        sprintf(text, "func.func public @main(%%a0: tensor<4xf32>%s", aliased ? " {tf.aliasing_output = 0 : i32}" : "");
    for (int i = 1; i < count; i++) {
      at += sprintf(text + at, ", %%a%d: tensor<4xf32>", i);
    }
    sprintf(text + at,
            ") -> tensor<4xf32> { %%r = stablehlo.add %%a0, %%a0 : tensor<4xf32> return %%r : tensor<4xf32> }");
    tt_pjrt_executable *executable;
    need(tt_pjrt_compile(client, text, strlen(text), NULL, 0, &executable));
    static const float values[4] = {1, 2, 3, 4};
    static const int64_t four[1] = {4};
    tt_pjrt_buffer *arguments[MOST];
    bool donate[MOST] = {false};
    int64_t kept[MOST];
    for (int i = 0; i < count; i++) {
      need(tt_pjrt_buffer_from_host(client, 0, values, TT_F32, four, 1, &arguments[i]));
      kept[i] = i;
    }
    for (int round = 0; round < 3; round++) {
      double ours = time_ours(client, executable, arguments, donate, count);
      double direct = time_direct(client, executable, arguments, aliased ? kept : NULL, count);
      double indices = time_direct(client, executable, arguments, kept, count);
      printf("%d arguments%s: %.0f ns, directly %.0f ns, with all indices %.0f ns\n", count,
             aliased ? ", one aliased" : "", ours, direct, indices);
    }
    for (int i = 0; i < count; i++) {
      tt_pjrt_buffer_free(client, arguments[i]);
    }
    tt_pjrt_executable_free(client, executable);
  }
  tt_pjrt_client_free(client);
  tt_pjrt_plugin_free(plugin);
  return 0;
}

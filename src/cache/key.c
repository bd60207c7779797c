// What an executable depends on besides module and compile options.
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/internal.h"

// The first processor's model and features, from /proc/cpuinfo: XLA:CPU compiles for what this one has. Where there is
// no such file the plugin's own check at loading is what is left.
static void add_host(tt_strbuf *out) {
  static const char *const names[] = {"vendor_id",   "cpu family",   "model",           "model name",
                                      "stepping",    "flags",        "Features",        "CPU part",
                                      "CPU variant", "CPU revision", "CPU implementer", "CPU architecture"};
  FILE *file = fopen("/proc/cpuinfo", "re");
  char *line = NULL;
  size_t capacity = 0;
  while (file && getline(&line, &capacity, file) > 1) {  // an empty line ends the first processor
    size_t length = strcspn(line, "\t:");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
      if (length == strlen(names[i]) && !memcmp(line, names[i], length)) {
        tt_strbuf_puts(out, line);
      }
    }
  }
  free(line);
  if (file) {
    fclose(file);
  }
  // Loops are cut for as many threads as there are processors to run on.
  cpu_set_t mine;
  CPU_ZERO(&mine);
  int count = sched_getaffinity(0, sizeof mine, &mine) ? 0 : CPU_COUNT(&mine);
  tt_strbuf_printf(out, "processors: %d\n", count);
}

tt_status *tt_cache_identity(const char *version, const tt_pjrt_plugin *plugin, const tt_pjrt_client *client,
                             tt_digest *out_digest) {
  // What XLA reads for itself: options that no compile option shows.
  static const char *const variables[] = {"XLA_FLAGS", "LIBTPU_INIT_ARGS", "TF_XLA_FLAGS"};
  tt_strbuf text = {0};
  tt_strbuf_printf(&text, "torch_tpu %s, format %d\n", version, TT_ENTRY_VERSION);
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
    const char *value = getenv(variables[i]);
    tt_strbuf_printf(&text, "%s=%s\n", variables[i], value ? value : "");
  }
  tt_status *status = tt_pjrt_describe(plugin, client, &text);
  if (!status && tt_pjrt_client_is_cpu(client)) {
    add_host(&text);
  }
  if (!status && text.failed) {
    status = tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  *out_digest = tt_digest_of(text.data, text.length);
  tt_strbuf_free(&text);
  return status;
}

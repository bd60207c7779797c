// Compiles modules for a TPU that need not be there:
//
//   tpu_compile LIBTPU.so TOPOLOGY [FOLDER]    reads paths of modules from stdin, a line each
//
// With FOLDER, the optimized program of a/b.mlir is kept as FOLDER/b.hlo.pb, an HloProto. Answers each with lines on
// stdout: "begin PATH", then "ok MILLISECONDS PATH" (of CPU time, which does not depend on what else the machine does)
// or "error PATH MESSAGE" (a new line in the message is written \n). The compiler may end the process; whoever reads
// knows from the "begin" on which module.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pjrt/pjrt.h"
#include "support/files.h"

static double cpu_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void print_error(const char *path, const char *message) {
  printf("error %s ", path);
  for (; *message; message++) {
    if (*message == '\n') {
      fputs("\\n", stdout);
    } else {
      putchar(*message);
    }
  }
  putchar('\n');
}

// Whole or not at all.
static bool keep_program(const char *folder, const char *path, const tt_pjrt_aot_result *result) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
  char file_name[8192], temporary[8192 + 8];
  int length = snprintf(file_name, sizeof file_name, "%s/%.*s.hlo.pb", folder,
                        (int)(dot ? (size_t)(dot - name) : strlen(name)), name);
  if (length < 0 || (size_t)length >= sizeof file_name || !result->optimized) {
    return false;
  }
  snprintf(temporary, sizeof temporary, "%s.new", file_name);
  FILE *file = fopen(temporary, "wbe");
  bool good = file && fwrite(result->optimized, 1, result->optimized_size, file) == result->optimized_size;
  good = (!file || !fclose(file)) && good;
  return good && !rename(temporary, file_name);
}

static void compile(tt_pjrt_topology *topology, const char *path, const char *folder) {
  size_t size = 0;
  char *text = read_file(path, &size);
  if (!text) {
    print_error(path, "the file can't be read");
    return;
  }
  double begin = cpu_ms();
  tt_pjrt_aot_result result;
  tt_status *status = tt_pjrt_topology_compile(topology, text, size, NULL, &result);
  if (status) {
    print_error(path, tt_status_message(status));
    tt_status_free(status);
  } else if (folder && !keep_program(folder, path, &result)) {
    print_error(path, "the optimized program can't be kept");
  } else {
    printf("ok %.0f %s\n", cpu_ms() - begin, path);
  }
  tt_pjrt_aot_result_free(&result);
  free(text);
}

int main(int argc, char **argv) {
  if (argc != 3 && argc != 4) {
    fprintf(stderr, "usage: tpu_compile LIBTPU.so TOPOLOGY [FOLDER] < paths\n");
    return 2;
  }
  setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1", 0);
  tt_pjrt_plugin *plugin = NULL;
  tt_pjrt_topology *topology = NULL;
  tt_status *status = tt_pjrt_plugin_load_for_topology(argv[1], &plugin);
  if (!status) {
    status = tt_pjrt_topology_create(plugin, argv[2], &topology);
  }
  if (status) {
    fprintf(stderr, "tpu_compile: %s\n", tt_status_message(status));
    return 1;
  }
  static char path[8192];
  while (fgets(path, sizeof path, stdin)) {
    path[strcspn(path, "\n")] = 0;
    printf("begin %s\n", path);
    fflush(stdout);
    compile(topology, path, argv[3]);
    fflush(stdout);
  }
  _Exit(0);  // the compiler's threads need no goodbye
}

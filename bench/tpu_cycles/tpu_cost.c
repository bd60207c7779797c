// Prints what programs will cost by the TPU compiler's estimate, a line of JSON each:
//
//   tpu_cost [--top N] FILE...    files that tpu_compile kept
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost.h"
#include "support/files.h"

static void print_text(const char *text, size_t length) {
  putchar('"');
  for (size_t i = 0; i < length; i++) {
    putchar(text[i] >= ' ' && text[i] <= '~' && text[i] != '"' && text[i] != '\\' ? text[i] : '?');
  }
  putchar('"');
}

static void print_cost(const char *path, const tt_cost *cost, size_t top) {
  printf("{\"file\": ");
  print_text(path, strlen(path));
  printf(", \"cycles\": %lld, \"bytes\": %lld, \"copied_bytes\": %lld, \"instructions\": %lld, \"unknown_loops\": %lld",
         (long long)cost->cycles, (long long)cost->bytes, (long long)cost->copied_bytes, (long long)cost->instructions,
         (long long)cost->unknown_loops);
  printf(", \"top\": [");
  for (size_t i = 0; i < cost->item_count && i < top; i++) {
    const tt_cost_item *item = &cost->items[i];
    printf("%s{\"cycles\": %lld, \"times\": %lld, \"bytes\": %lld, \"opcode\": ", i ? ", " : "",
           (long long)item->cycles, (long long)item->times, (long long)item->bytes);
    print_text(item->opcode, item->opcode_length);
    printf(", \"name\": ");
    print_text(item->name, item->name_length);
    printf("}");
  }
  printf("]}\n");
}

int main(int argc, char **argv) {
  int first = 1;
  size_t top = 0;
  if (argc > 2 && !strcmp(argv[1], "--top")) {
    top = strtoul(argv[2], NULL, 10);
    first = 3;
  }
  if (first >= argc) {
    fprintf(stderr, "usage: tpu_cost [--top N] FILE...\n");
    return 2;
  }
  for (int i = first; i < argc; i++) {
    size_t size = 0;
    char *data = read_file(argv[i], &size);
    tt_cost cost = {0};
    tt_status *status = data ? tt_cost_read(data, size, &cost) : tt_error(TT_ERR_RUNTIME, "it can't be read");
    if (status) {
      fprintf(stderr, "tpu_cost: %s: %s\n", argv[i], tt_status_message(status));
      return 1;
    }
    print_cost(argv[i], &cost, top);
    tt_cost_free(&cost);
    free(data);
  }
  return 0;
}

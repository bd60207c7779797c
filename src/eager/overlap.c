// Updates in place that read what they overwrite. XLA:CPU fuses a dynamic_update_slice with what makes its update, and
// writes the fusion's result over its operand even where the update is read from other elements of that operand:
// x[1:] = x[:-1].clone(), as one program, may shift elements that were shifted already. An operator alone never shows
// it, as such views overlap and PyTorch refuses them.
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "eager/fused.h"

// What XLA:CPU never fuses into a consumer: its result is in memory before an update begins.
static bool is_barrier(const char *op) {
  static const char *const names[] = {"dot_general",
                                      "convolution",
                                      "sort",
                                      "while",
                                      "scatter",
                                      "custom_call",
                                      "fft",
                                      "cholesky",
                                      "case",
                                      "select_and_scatter",
                                      "reduce_window",
                                      "triangular_solve",
                                      "rng_bit_generator"};
  op += *op == '"';
  op += strncmp(op, "stablehlo.", 10) ? 0 : 10;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const size_t length = strlen(names[i]);
    if (!strncmp(op, names[i], length) && !isalnum((unsigned char)op[length]) && op[length] != '_') {
      return true;
    }
  }
  return false;
}

typedef struct marks {
  const bool *params;
  int32_t param_count;
  bool *values;  // %0, %1, ...
  int32_t value_count;
} marks;

// Whether a name in the line up to `end` is marked.
static bool reads_marked(const marks *m, const char *at, const char *end) {
  for (; at < end; at++) {
    if (*at != '%') {
      continue;
    }
    const bool is_param = !strncmp(at, "%arg", 4);
    char *after;
    const long number = strtol(at + (is_param ? 4 : 1), &after, 10);
    if (after == at + (is_param ? 4 : 1) || number < 0) {
      continue;
    }
    if (is_param ? number < m->param_count && m->params[number] : number < m->value_count && m->values[number]) {
      return true;
    }
  }
  return false;
}

static const char *line_end(const char *line) {
  const char *end = strchr(line, '\n');
  return end ? end : line + strlen(line);
}

static int32_t count_lines(const char *text) {
  int32_t count = 1;
  for (; *text; text++) {
    count += *text == '\n';
  }
  return count;
}

tt_status *tt_text_reaches(const char *text, const bool *params, int32_t param_count, bool *out_reaches) {
  marks m = {.params = params, .param_count = param_count, .value_count = count_lines(text)};
  *out_reaches = false;
  m.values = calloc((size_t)m.value_count, sizeof *m.values);
  if (!m.values) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  for (const char *line = text; *line; line = *line_end(line) ? line_end(line) + 1 : "") {
    const char *at = line + strspn(line, " "), *end = line_end(line);
    if (!strncmp(at, "return ", 7)) {
      *out_reaches = *out_reaches || reads_marked(&m, at, end);
    } else if (*at == '%' && isdigit((unsigned char)at[1])) {
      const long number = strtol(at + 1, NULL, 10);
      const char *equals = strstr(at, " = ");
      if (equals && equals < end && number < m.value_count) {
        m.values[number] = !is_barrier(equals + 3) && reads_marked(&m, equals, end);
      }
    }
  }
  free(m.values);
  return NULL;
}

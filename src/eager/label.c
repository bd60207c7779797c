#include "eager/label.h"

#include <string.h>

enum { DEPTH = 16, SIZE = 128 };

static _Thread_local struct {
  int32_t depth;  // those deeper than DEPTH are only counted
  char texts[DEPTH][SIZE];
} labels;

void tt_label_push(const char *label) {
  if (labels.depth < DEPTH) {
    size_t length = strnlen(label, SIZE - 1);
    memcpy(labels.texts[labels.depth], label, length);
    labels.texts[labels.depth][length] = '\0';
  }
  labels.depth++;
}

void tt_label_pop(void) { labels.depth -= labels.depth > 0; }

bool tt_label_any(void) { return labels.depth > 0; }

void tt_label_write(tt_strbuf *out) {
  for (int32_t i = 0; i < labels.depth && i < DEPTH; i++) {
    tt_strbuf_puts(out, i ? "/" : "");
    tt_strbuf_puts(out, labels.texts[i]);
  }
}

// A name as it stands between the quotes of MLIR.
static void put_escaped(tt_strbuf *out, const char *text) {
  static const char hex[] = "0123456789ABCDEF";
  for (; *text; text++) {
    unsigned char byte = (unsigned char)*text;
    if (byte < ' ' || byte > '~' || byte == '"' || byte == '\\') {
      char escape[] = {'\\', hex[byte >> 4], hex[byte & 15]};
      tt_strbuf_append(out, escape, sizeof escape);
    } else {
      tt_strbuf_append(out, text, 1);
    }
  }
}

char *tt_label_copy(void) {
  tt_strbuf text = {0};
  tt_label_write(&text);
  if (text.failed) {
    tt_strbuf_free(&text);
    return NULL;
  }
  return text.data;
}

void tt_label_put_location(tt_strbuf *out, const char *label, const char *op) {
  tt_strbuf_puts(out, " loc(\"");
  put_escaped(out, label);
  tt_strbuf_puts(out, "/");
  put_escaped(out, op);
  tt_strbuf_puts(out, "\")");
}

// Whether a line is a whole operation, that has no location.
static bool takes_location(const char *line, size_t length) {
  size_t indent = strspn(line, " ");
  return indent < length && line[indent] == '%' && line[length - 1] != '{' && line[length - 1] != '(' &&
         !(line[length - 1] == ')' && memmem(line, length, " loc(\"", 6));
}

char *tt_label_text(const char *text, const char *op) {
  if (!tt_label_any()) {
    return NULL;
  }
  tt_strbuf name = {0}, location = {0}, out = {0};
  tt_label_write(&name);
  tt_label_put_location(&location, tt_strbuf_text(&name), op);
  while (*text) {
    size_t length = strcspn(text, "\n");
    tt_strbuf_append(&out, text, length);
    if (takes_location(text, length)) {
      tt_strbuf_append(&out, location.data, location.length);
    }
    tt_strbuf_append(&out, "\n", 1);
    text += length + (text[length] == '\n');
  }
  bool failed = name.failed || location.failed || out.failed;
  tt_strbuf_free(&name);
  tt_strbuf_free(&location);
  if (failed) {
    tt_strbuf_free(&out);  // the module without it is as good
    return NULL;
  }
  return out.data;
}

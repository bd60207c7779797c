#include "base/strbuf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(tt_strbuf *buffer, size_t extra) {
  if (buffer->failed) {
    return false;
  }
  if (extra > SIZE_MAX / 4 || buffer->length > SIZE_MAX / 4) {
    buffer->failed = true;
    return false;
  }
  size_t need = buffer->length + extra + 1;
  if (need <= buffer->capacity) {
    return true;
  }
  size_t capacity = buffer->capacity ? buffer->capacity : 256;
  while (capacity < need) {
    capacity *= 2;
  }
  char *data = realloc(buffer->data, capacity);
  if (!data) {
    buffer->failed = true;
    return false;
  }
  buffer->data = data;
  buffer->capacity = capacity;
  return true;
}

void tt_strbuf_append(tt_strbuf *buffer, const char *text, size_t length) {
  if (!reserve(buffer, length)) {
    return;
  }
  if (length) {
    memcpy(buffer->data + buffer->length, text, length);
  }
  buffer->length += length;
  buffer->data[buffer->length] = '\0';
}

void tt_strbuf_puts(tt_strbuf *buffer, const char *text) { tt_strbuf_append(buffer, text, strlen(text)); }

void tt_strbuf_printf(tt_strbuf *buffer, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  if (length < 0) {
    buffer->failed = true;
  } else if (reserve(buffer, (size_t)length)) {
    vsnprintf(buffer->data + buffer->length, (size_t)length + 1, format, again);
    buffer->length += (size_t)length;
  }
  va_end(again);
  va_end(args);
}

const char *tt_strbuf_text(const tt_strbuf *buffer) { return buffer->data ? buffer->data : ""; }

void tt_strbuf_free(tt_strbuf *buffer) {
  free(buffer->data);
  *buffer = (tt_strbuf){0};
}

#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_SIZE = 16 * 1024, ALIGNMENT = 16 };

struct tt_arena_block {
  struct tt_arena_block *next;
  size_t used, size;
  _Alignas(ALIGNMENT) char data[];
};

void *tt_arena_alloc(tt_arena *arena, size_t size) {
  if (size > SIZE_MAX / 2) {
    return NULL;
  }
  size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  struct tt_arena_block *block = arena->head;
  if (!block || block->size - block->used < size) {
    size_t room = size > BLOCK_SIZE ? size : BLOCK_SIZE;
    block = malloc(sizeof *block + room);
    if (!block) {
      return NULL;
    }
    *block = (struct tt_arena_block){.size = room};
    // A big allocation fills its block: it goes behind the current one, whose rest stays in use.
    struct tt_arena_block **place = size > BLOCK_SIZE && arena->head ? &arena->head->next : &arena->head;
    block->next = *place;
    *place = block;
  }
  void *memory = block->data + block->used;
  block->used += size;
  return memset(memory, 0, size);
}

void *tt_arena_copy(tt_arena *arena, const void *data, size_t size) {
  void *memory = tt_arena_alloc(arena, size);
  return memory && size ? memcpy(memory, data, size) : memory;
}

char *tt_arena_printf(tt_arena *arena, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  char *text = length < 0 ? NULL : tt_arena_alloc(arena, (size_t)length + 1);
  if (text) {
    vsnprintf(text, (size_t)length + 1, format, again);
  }
  va_end(again);
  va_end(args);
  return text;
}

void tt_arena_free(tt_arena *arena) {
  while (arena->head) {
    struct tt_arena_block *next = arena->head->next;
    free(arena->head);
    arena->head = next;
  }
}

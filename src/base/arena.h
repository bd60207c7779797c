// A bump allocator: many small allocations, freed together. Not thread-safe.
#ifndef TORCHTPU_BASE_ARENA_H
#define TORCHTPU_BASE_ARENA_H

#include <stddef.h>

typedef struct tt_arena {
  struct tt_arena_block *head;  // owned
} tt_arena;

// An arena needs no initialisation beyond zeroing: `tt_arena arena = {0};`.

// `size` zeroed bytes aligned to 16, owned by the arena; NULL when memory is gone.
void *tt_arena_alloc(tt_arena *arena, size_t size);
void *tt_arena_copy(tt_arena *arena, const void *data, size_t size);
char *tt_arena_printf(tt_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Frees every allocation; the arena is empty and usable again.
void tt_arena_free(tt_arena *arena);

#endif  // TORCHTPU_BASE_ARENA_H

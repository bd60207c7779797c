// A hash map from byte strings, compared whole, to pointers. Not thread-safe: the caller holds a lock.
#ifndef TORCHTPU_BASE_MAP_H
#define TORCHTPU_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct tt_map {
  struct tt_map_slot *slots;  // owned; `capacity` of them, a power of two; NULL while empty
  size_t capacity, count;
} tt_map;

// A map needs no initialisation beyond zeroing: `tt_map map = {0};`. Keys may be of any length, zero included, and hold
// any bytes; the map copies them. Values are borrowed, and may be NULL.

// The hash of a key, for the `..._hashed` forms: a caller that looks in several places computes it once.
uint64_t tt_map_hash(const void *key, size_t size);

// The value, or NULL if the key is absent (tt_map_find() tells that from a NULL value).
void *tt_map_get(const tt_map *map, const void *key, size_t size);
void *tt_map_get_hashed(const tt_map *map, uint64_t hash, const void *key, size_t size);
bool tt_map_find(const tt_map *map, const void *key, size_t size, void **out_value);

// Adds the key, or replaces its value; `out_old`, if not NULL, receives the value it had (NULL if none). False when
// memory is gone: the map is then unchanged.
TT_MUST_USE bool tt_map_set(tt_map *map, const void *key, size_t size, void *value, void **out_old);
TT_MUST_USE bool tt_map_set_hashed(tt_map *map, uint64_t hash, const void *key, size_t size, void *value,
                                   void **out_old);

// Removes the key and returns the value it had, NULL if none.
void *tt_map_remove(tt_map *map, const void *key, size_t size);

// Visits every entry, in no particular order:
//   size_t cursor = 0;
//   tt_map_entry entry;
//   while (tt_map_next(&map, &cursor, &entry)) { ... }
// Values may be replaced meanwhile; adding or removing keys ends the iteration's validity. `entry.key` is the map's.
typedef struct tt_map_entry {
  const void *key;
  size_t size;
  void *value;
} tt_map_entry;
bool tt_map_next(const tt_map *map, size_t *cursor, tt_map_entry *out_entry);

// Empties the map and frees its memory, after calling `free_value`, if not NULL, on every value.
void tt_map_free(tt_map *map, void (*free_value)(void *value));

#endif  // TORCHTPU_BASE_MAP_H

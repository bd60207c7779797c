#include "base/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

// Open addressing with linear probing, at most 3/4 full. The hash stands in the slot, so that a probe touches a key
// only when all 64 bits agree, and growing touches none.
enum { FIRST_CAPACITY = 16 };

struct node {
  void *value;
  size_t size;
  unsigned char key[];
};

struct tt_map_slot {
  uint64_t hash;
  struct node *node;  // owned; NULL: free
};

uint64_t tt_map_hash(const void *key, size_t size) { return tt_hash_bytes(key, size, 0); }

// The key's slot, or the free one where it would go. The map must have slots.
static struct tt_map_slot *lookup(const tt_map *map, uint64_t hash, const void *key, size_t size) {
  size_t mask = map->capacity - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    struct tt_map_slot *slot = &map->slots[i];
    if (!slot->node ||
        (slot->hash == hash && slot->node->size == size && (size == 0 || memcmp(slot->node->key, key, size) == 0))) {
      return slot;
    }
  }
}

static struct node *find(const tt_map *map, uint64_t hash, const void *key, size_t size) {
  return map->count ? lookup(map, hash, key, size)->node : NULL;
}

void *tt_map_get_hashed(const tt_map *map, uint64_t hash, const void *key, size_t size) {
  struct node *node = find(map, hash, key, size);
  return node ? node->value : NULL;
}

void *tt_map_get(const tt_map *map, const void *key, size_t size) {
  return tt_map_get_hashed(map, tt_map_hash(key, size), key, size);
}

bool tt_map_find(const tt_map *map, const void *key, size_t size, void **out_value) {
  struct node *node = find(map, tt_map_hash(key, size), key, size);
  *out_value = node ? node->value : NULL;
  return node != NULL;
}

static bool grow(tt_map *map) {
  size_t capacity = map->capacity ? map->capacity * 2 : FIRST_CAPACITY;
  struct tt_map_slot *slots = calloc(capacity, sizeof *slots);
  if (!slots) {
    return false;
  }
  for (size_t i = 0; i < map->capacity; i++) {
    if (map->slots[i].node) {
      size_t at = map->slots[i].hash & (capacity - 1);
      while (slots[at].node) {
        at = (at + 1) & (capacity - 1);
      }
      slots[at] = map->slots[i];
    }
  }
  free(map->slots);
  map->slots = slots;
  map->capacity = capacity;
  return true;
}

bool tt_map_set_hashed(tt_map *map, uint64_t hash, const void *key, size_t size, void *value, void **out_old) {
  struct node *node = find(map, hash, key, size);
  if (out_old) {
    *out_old = node ? node->value : NULL;
  }
  if (node) {
    node->value = value;
    return true;
  }
  if (size > SIZE_MAX / 2 || (map->count >= map->capacity / 4 * 3 && !grow(map))) {
    return false;
  }
  node = malloc(sizeof *node + size);
  if (!node) {
    return false;
  }
  node->value = value;
  node->size = size;
  if (size) {
    memcpy(node->key, key, size);
  }
  *lookup(map, hash, key, size) = (struct tt_map_slot){.hash = hash, .node = node};
  map->count++;
  return true;
}

bool tt_map_set(tt_map *map, const void *key, size_t size, void *value, void **out_old) {
  return tt_map_set_hashed(map, tt_map_hash(key, size), key, size, value, out_old);
}

void *tt_map_remove(tt_map *map, const void *key, size_t size) {
  if (!map->count) {
    return NULL;
  }
  struct tt_map_slot *slot = lookup(map, tt_map_hash(key, size), key, size);
  if (!slot->node) {
    return NULL;
  }
  void *value = slot->node->value;
  free(slot->node);
  map->count--;
  // Close the gap: whoever probed past it moves back, so that there is nothing like a deleted slot.
  size_t mask = map->capacity - 1, gap = (size_t)(slot - map->slots);
  for (size_t i = (gap + 1) & mask; map->slots[i].node; i = (i + 1) & mask) {
    size_t home = map->slots[i].hash & mask;
    if (((i - home) & mask) >= ((i - gap) & mask)) {
      map->slots[gap] = map->slots[i];
      gap = i;
    }
  }
  map->slots[gap] = (struct tt_map_slot){0};
  return value;
}

bool tt_map_next(const tt_map *map, size_t *cursor, tt_map_entry *out_entry) {
  while (*cursor < map->capacity) {
    const struct node *node = map->slots[(*cursor)++].node;
    if (node) {
      *out_entry = (tt_map_entry){.key = node->key, .size = node->size, .value = node->value};
      return true;
    }
  }
  return false;
}

void tt_map_free(tt_map *map, void (*free_value)(void *value)) {
  for (size_t i = 0; i < map->capacity; i++) {
    struct node *node = map->slots[i].node;
    if (node && free_value) {
      free_value(node->value);
    }
    free(node);
  }
  free(map->slots);
  *map = (tt_map){0};
}

// What was recorded: a node a step, a variant a set of results that were live at a stretch's end.
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "eager/fused.h"

static uint64_t hash_step(const tt_node *parent, const tt_step *step) {
  uint64_t hash = tt_hash_combine((uint64_t)(uintptr_t)parent, (uint64_t)(uintptr_t)step->record);
  return tt_hash_bytes(step->sources, sizeof *step->sources * (size_t)step->source_count, hash);
}

static bool is_step(const tt_node *node, const tt_step *step) {
  bool same = node->record == step->record && node->source_count == step->source_count;
  for (int32_t i = 0; same && i < step->source_count; i++) {
    same = node->sources[i] == step->sources[i];
  }
  return same;
}

static tt_node *find(const tt_trie *trie, const tt_node *parent, const tt_step *step, uint64_t hash) {
  tt_node *node = trie->bucket_count ? trie->buckets[hash & (trie->bucket_count - 1)] : NULL;
  while (node && (node->hash != hash || node->parent != parent || !is_step(node, step))) {
    node = node->next;
  }
  return node;
}

tt_node *tt_trie_find(tt_trie *trie, tt_node *parent, const tt_step *step) {
  tt_node **last = parent ? &parent->last : &trie->first;
  if (!*last || !is_step(*last, step)) {
    tt_node *node = find(trie, parent, step, hash_step(parent, step));
    *last = node ? node : *last;
    return node;
  }
  return *last;
}

static bool grow(tt_trie *trie) {
  size_t count = trie->bucket_count ? 2 * trie->bucket_count : 1024;
  tt_node **buckets = calloc(count, sizeof(tt_node *));
  if (!buckets) {
    return false;
  }
  for (size_t i = 0; i < trie->bucket_count; i++) {
    for (tt_node *node = trie->buckets[i], *next; node; node = next) {
      next = node->next;
      node->next = buckets[node->hash & (count - 1)];
      buckets[node->hash & (count - 1)] = node;
    }
  }
  free(trie->buckets);
  trie->buckets = buckets;
  trie->bucket_count = count;
  return true;
}

tt_node *tt_trie_add(tt_trie *trie, tt_node *parent, const tt_step *step) {
  uint64_t hash = hash_step(parent, step);
  tt_node *node = find(trie, parent, step, hash);
  if (node) {
    return node;
  }
  if (trie->count >= trie->bucket_count && !grow(trie)) {
    return NULL;
  }
  size_t size = sizeof *step->sources * (size_t)step->source_count;
  node = calloc(1, sizeof *node + size);
  if (!node) {
    return NULL;
  }
  node->parent = parent;
  node->hash = hash;
  node->record = step->record;
  atomic_fetch_add_explicit(&step->record->refs, 1, memory_order_relaxed);
  node->depth = parent ? parent->depth + 1 : 1;
  node->source_count = step->source_count;
  memcpy(node->sources, step->sources, size);
  node->label = step->label ? strdup(step->label) : NULL;
  node->next = trie->buckets[hash & (trie->bucket_count - 1)];
  trie->buckets[hash & (trie->bucket_count - 1)] = node;
  trie->count++;
  return node;
}

static void free_node(tt_node *node) {
  for (tt_variant *variant = node->variants, *next; variant; variant = next) {
    next = variant->next;
    tt_record_unref(variant->program);
    free(variant);
  }
  tt_record_unref(node->record);
  free(node->label);
  free(node);
}

void tt_trie_clear(tt_trie *trie) {
  for (size_t i = 0; i < trie->bucket_count; i++) {
    for (tt_node *node = trie->buckets[i], *next; node; node = next) {
      next = node->next;
      free_node(node);
    }
  }
  free(trie->buckets);
  *trie = (tt_trie){.generation = trie->generation + 1};
}

// ---- variants ----
tt_variant *tt_node_find(const tt_node *node, const int32_t *live, int32_t count) {
  tt_variant *variant = node->variants;
  while (variant && (variant->live_count != count || memcmp(variant->live, live, sizeof *live * (size_t)count) != 0)) {
    variant = variant->next;
  }
  return variant;
}

tt_variant *tt_node_add(tt_node *node, const int32_t *live, int32_t count) {
  tt_variant *variant = tt_node_find(node, live, count);
  if (variant || node->variant_count >= TT_VARIANT_LIMIT) {
    return variant;
  }
  variant = calloc(1, sizeof *variant + sizeof *live * (size_t)count);
  if (variant) {
    variant->live_count = count;
    memcpy(variant->live, live, sizeof *live * (size_t)count);
    variant->next = node->variants;
    node->variants = variant;
    node->variant_count++;
  }
  return variant;
}

void tt_node_ready(tt_node *node, tt_variant *variant, tt_record *program) {
  variant->program = program;
  variant->state = TT_VARIANT_READY;
  for (; node; node = node->parent) {
    node->known++;
  }
}

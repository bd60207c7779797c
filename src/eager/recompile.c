#include "eager/recompile.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/map.h"
#include "base/thread.h"
#include "eager/explain.h"
#include "eager/key_part.h"

enum {
  CHAINS = 32,        // an operator
  VALUES = 16,        // that a chain remembers
  MOST_CHANGES = 32,  // words of a key
  MOST_WORDS = 2048,
  UNSEEN = 10,  // times as long a chain is a loop without further evidence
  PLACE_SIZE = 512
};

typedef struct chain {
  uint64_t used;   // when it was last extended
  uint64_t place;  // the hash of where it was compiled
  uint64_t *key;   // the last; owned
  int32_t words, length;
  int32_t changes[MOST_CHANGES], change_count;  // the words that change; the first is the one that is told
  int64_t values[VALUES];                       // of that word, in a ring
  uint64_t hashes[VALUES];                      // of the keys
  uint64_t turn;                                // at the last key
  int32_t turns;                                // of the keys that came in another turn than the one before
} chain;
typedef struct history {
  chain *chains[CHAINS];  // owned
} history;

typedef struct suspect {
  struct suspect *next;
  char *text;  // the warning, but for the place
} suspect;

atomic_int tt_recompile_suspects;
atomic_uint_fast64_t tt_recompile_turns;
static tt_mutex lock = TT_MUTEX_INIT;
static tt_map histories;  // by the operator's address
static uint64_t clock_now;
static _Atomic(tt_warner) warner;
static _Thread_local suspect *suspects;

void tt_set_warner(tt_warner function) { atomic_store(&warner, function); }

static int32_t limit(void) {
  static atomic_int known = -1;
  int32_t value = atomic_load_explicit(&known, memory_order_relaxed);
  if (value < 0) {
    const char *text = getenv("TORCH_TPU_RECOMPILE_WARNING");
    char *end;
    long asked = text && *text ? strtol(text, &end, 10) : 8;
    value = asked < 0 ? 0 : asked > 1000000 ? 1000000 : (int32_t)asked;
    atomic_store(&known, value);
  }
  return value;
}

// ---- chains ----
// The words in which the keys differ; -1 if one is no size or number, or they are too many.
static int32_t compare(const chain *c, const uint64_t *key, const tt_key_part *parts, int32_t *out) {
  int32_t count = 0;
  for (int32_t i = 0; i < c->words; i++) {
    if (c->key[i] != key[i]) {
      if (parts[i].kind == TT_PART_HEAD || count == MOST_CHANGES) {
        return -1;
      }
      out[count++] = i;
    }
  }
  return count;
}

static bool contains(const int32_t *list, int32_t count, int32_t what) {
  for (int32_t i = 0; i < count; i++) {
    if (list[i] == what) {
      return true;
    }
  }
  return false;
}

static bool had_value(const chain *c, int64_t value) {
  int32_t kept = c->length < VALUES ? c->length : VALUES;
  for (int32_t i = 0; i < kept; i++) {
    if (c->values[i] == value) {
      return true;
    }
  }
  return false;
}

// Whether the changes are those of the chain.
static bool continues(const chain *c, const uint64_t *key, const int32_t *changes, int32_t count) {
  if (c->length == 1) {
    return true;
  }
  for (int32_t i = 0; i < count; i++) {
    if (!contains(c->changes, c->change_count, changes[i])) {
      return false;
    }
  }
  return contains(changes, count, c->changes[0]) && !had_value(c, (int64_t)key[c->changes[0]]);
}

// Sizes are told rather than arguments, these rather than what follows from a size.
static void choose_first(chain *c, const tt_key_part *parts) {
  static const uint8_t rank[] = {
      [TT_PART_SIZE] = 1, [TT_PART_INT] = 2, [TT_PART_DOUBLE] = 2, [TT_PART_HELD] = 3, [TT_PART_STRIDE] = 4};
  int32_t best = 0;
  for (int32_t i = 1; i < c->change_count; i++) {
    best = rank[parts[c->changes[i]].kind] < rank[parts[c->changes[best]].kind] ? i : best;
  }
  int32_t chosen = c->changes[best];
  c->changes[best] = c->changes[0];
  c->changes[0] = chosen;
}

static void remember(chain *c, const uint64_t *key, uint64_t hash) {
  c->used = ++clock_now;
  c->turn = atomic_load_explicit(&tt_recompile_turns, memory_order_relaxed);
  c->hashes[(c->length - 1) % VALUES] = hash;
  if (c->change_count) {
    c->values[(c->length - 1) % VALUES] = (int64_t)key[c->changes[0]];
  }
  memcpy(c->key, key, sizeof *c->key * (size_t)c->words);
}

static void free_chain(chain *c) {
  if (c) {
    free(c->key);
    free(c);
  }
}

// A new chain of one key, in the place of the one that was not extended for the longest time. NULL without memory.
static chain *start(history *h, uint64_t place, const uint64_t *key, int32_t words, uint64_t hash) {
  chain **at = &h->chains[0];
  for (int32_t i = 1; i < CHAINS && *at; i++) {
    at = !h->chains[i] || h->chains[i]->used < (*at)->used ? &h->chains[i] : at;
  }
  chain *c = calloc(1, sizeof *c);
  if (c && !(c->key = malloc(sizeof *key * (size_t)words))) {
    free(c);
    c = NULL;
  }
  if (c) {
    c->place = place;
    c->words = words;
    c->length = 1;
    remember(c, key, hash);
    free_chain(*at);
    *at = c;
  }
  return c;
}

static void extend(chain *c, const tt_record *record, const tt_key_part *parts, const int32_t *changes, int32_t count) {
  if (c->length == 1) {
    memcpy(c->changes, changes, sizeof *changes * (size_t)count);
    c->change_count = count;
    choose_first(c, parts);
    c->values[0] = (int64_t)c->key[c->changes[0]];
  }
  c->turns += atomic_load_explicit(&tt_recompile_turns, memory_order_relaxed) != c->turn;
  c->length++;
  remember(c, record->key, record->hash);
}

// What the record differs in least: a chain that it continues, or (`single`) a key that it could make a chain with. Of
// equals the oldest: it was in the same place a turn ago, where another key of this turn was in another place.
static chain *find_nearest(const history *h, uint64_t place, const tt_record *record, const tt_key_part *parts,
                           bool single, int32_t *out_changes, int32_t *out_count) {
  chain *best = NULL;
  for (int32_t i = 0; i < CHAINS; i++) {
    chain *c = h->chains[i];
    if (!c || (c->length == 1) != single || c->place != place || c->words != record->key_words) {
      continue;
    }
    int32_t changes[MOST_CHANGES], count = compare(c, record->key, parts, changes);
    bool nearer = !best || count < *out_count || (count == *out_count && c->used < best->used);
    if (count > 0 && nearer && continues(c, record->key, changes, count)) {
      best = c;
      *out_count = count;
      memcpy(out_changes, changes, sizeof *changes * (size_t)count);
    }
  }
  return best;
}

// The chain that the record extends. Where it extends none, it is kept for later ones. NULL: there is none.
static chain *place_record(history *h, uint64_t place, const tt_record *record, const tt_key_part *parts) {
  int32_t changes[MOST_CHANGES], count = 0;
  chain *c = find_nearest(h, place, record, parts, false, changes, &count);
  if (!c) {
    const chain *near = find_nearest(h, place, record, parts, true, changes, &count);
    if (near) {
      // A chain of its own: the key stays, for one that is nearer to it.
      c = start(h, place, near->key, near->words, near->hashes[0]);
    }
    start(h, place, record->key, record->key_words, record->hash);
  }
  if (c) {
    extend(c, record, parts, changes, count);
  }
  return c;
}

static tt_record *find_hash(const tt_op_cache *cache, uint64_t hash) {
  tt_record *record = cache->bucket_count ? cache->buckets[hash & (cache->bucket_count - 1)] : NULL;
  while (record && record->hash != hash) {
    record = record->next;
  }
  return record;
}

// How many of the chain's keys were used again after the next one was compiled. A record's `used` is put back when that
// is: one that is not used again is the first that a full cache should lose.
static int32_t count_used_again(const tt_op_cache *cache, chain *c) {
  int32_t kept = c->length < VALUES ? c->length : VALUES, again = 0, newest = (c->length - 1) % VALUES;
  tt_record *last = find_hash(cache, c->hashes[(c->length - 2) % VALUES]);
  for (int32_t i = 0; i < kept; i++) {
    tt_record *record = i != newest ? find_hash(cache, c->hashes[i]) : NULL;
    again += record && record != last && record->used;
  }
  if (last) {
    last->used = false;
  }
  return again;
}

// ---- suspects ----
static void put_value(tt_strbuf *out, const tt_key_part *part, int64_t value) {
  double number;
  memcpy(&number, &value, sizeof number);
  if (part->kind == TT_PART_DOUBLE) {
    tt_strbuf_printf(out, "%g", number);
  } else {
    tt_strbuf_printf(out, "%lld", (long long)value);
  }
}

static void put_values(tt_strbuf *out, const chain *c, const tt_key_part *part) {
  int32_t kept = c->length < VALUES ? c->length : VALUES, shown = kept < 8 ? kept : 8;
  tt_strbuf_puts(out, shown < c->length ? "..., " : "");
  for (int32_t i = c->length - shown; i < c->length; i++) {
    tt_strbuf_puts(out, i > c->length - shown ? ", " : "");
    put_value(out, part, c->values[i % VALUES]);
  }
}

// Takes the text.
static void add_suspect(tt_strbuf *text) {
  suspect *made = text->failed ? NULL : malloc(sizeof *made);
  if (!made) {
    return;
  }
  *made = (suspect){.next = suspects, .text = text->data};
  *text = (tt_strbuf){0};
  suspects = made;
  atomic_fetch_add(&tt_recompile_suspects, 1);
}

static void suspect_chain(const tt_record *record, const tt_compile_site *site, const chain *c,
                          const tt_key_part *parts) {
  const tt_key_part *part = &parts[c->changes[0]];
  tt_strbuf text = {0};
  const char *name = strncmp(record->op->name, "tt::", 4) ? record->op->name : record->op->short_name;
  tt_strbuf_printf(&text, "%s is compiled again and again: ", name);
  tt_key_part_describe(record->op, part, &text);
  tt_strbuf_puts(&text, " was ");
  put_values(&text, c, part);
  tt_strbuf_printf(&text, " (%d programs so far). ", c->length);
  bool is_size = part->kind != TT_PART_INT && part->kind != TT_PART_DOUBLE;
  tt_strbuf_puts(&text, is_size
                            ? "Pad it to a fixed size, or to one of a few sizes"
                            : "Keep it constant, or pass it as a tensor: the values of tensors are not compiled in");
  if (2 * c->turns >= c->length - 1 || c->length > UNSEEN * limit() ||
      (site->flags >= 0 && !(site->flags & TT_PLACE_IN_MODULE))) {
    add_suspect(&text);
  }
  tt_strbuf_free(&text);
}

static history *history_of(const tt_op *op) {
  history *h = tt_map_get(&histories, &op, sizeof op);
  if (!h && (h = calloc(1, sizeof *h)) && !tt_map_set(&histories, &op, sizeof op, h, NULL)) {
    free(h);
    h = NULL;
  }
  return h;
}

void tt_recompile_locate(tt_compile_site *out_site) {
  out_site->text[0] = '\0';
  out_site->flags = limit() ? tt_locate(out_site->text, sizeof out_site->text) : -1;
}

void tt_recompile_note(tt_engine *engine, const tt_record *record, const tt_compile_site *site) {
  if (!limit() || record->key_words > MOST_WORDS) {
    return;
  }
  tt_key_part *parts = malloc(sizeof *parts * (size_t)record->key_words);
  if (!parts || !tt_key_parts(record->op, record->key, record->key_words, parts)) {
    free(parts);
    return;
  }
  tt_mutex_lock(&lock);
  history *h = history_of(record->op);
  chain *c = h ? place_record(h, tt_hash_bytes(site->text, strlen(site->text), 0), record, parts) : NULL;
  if (c) {
    int32_t kept = c->length < VALUES ? c->length : VALUES, again = count_used_again(&engine->cache, c);
    if (c->length > limit() && 4 * again <= kept) {
      suspect_chain(record, site, c, parts);
    }
  }
  tt_mutex_unlock(&lock);
  free(parts);
}

static void free_history(void *value) {
  history *h = value;
  for (int32_t i = 0; i < CHAINS; i++) {
    free_chain(h->chains[i]);
  }
  free(h);
}

void tt_recompile_forget(void) {
  tt_mutex_lock(&lock);
  tt_map_free(&histories, free_history);
  tt_mutex_unlock(&lock);
}

void tt_recompile_note_stretch(tt_node *first) {
  uint64_t turn = atomic_load_explicit(&tt_recompile_turns, memory_order_relaxed);
  if (!limit() || (first->unused_programs && first->turn == turn)) {
    return;  // a long program has many stretches
  }
  first->turn = turn;
  if (++first->unused_programs > limit()) {
    tt_strbuf text = {0};
    tt_strbuf_printf(&text,
                     "%d programs that begin with %s were compiled, and none was run again: what follows it, or which "
                     "results are kept, changes from turn to turn. Keep the operators of each turn the same, with "
                     "torch.where for what depends on data, or run this in strict mode",
                     first->unused_programs, first->record->op->name);
    add_suspect(&text);
    tt_strbuf_free(&text);
  }
}

// ---- warning ----
static void warn(const suspect *s) {
  char place[sizeof((tt_compile_site *)0)->text];
  tt_locate(place, sizeof place);
  tt_strbuf key = {0}, text = {0};
  // Where the place is not known, the operator's name stands for it.
  tt_strbuf_printf(&key, "recompile %.*s", (int)(*place ? strlen(place) : strcspn(s->text, " ")),
                   *place ? place : s->text);
  tt_strbuf_printf(&text, "%s%s%s. TORCH_TPU_RECOMPILE_WARNING=0 silences this.", place, *place ? ": " : "", s->text);
  if (!key.failed && !text.failed && tt_log_first(key.data)) {
    tt_warner function = atomic_load(&warner);
    if (function && *place) {
      function(text.data);
    } else {
      TT_LOG(WARN, "%s", text.data);
    }
  }
  tt_strbuf_free(&text);
  tt_strbuf_free(&key);
}

void tt_recompile_warn_slow(void) {
  while (suspects) {
    suspect *s = suspects;
    suspects = s->next;
    atomic_fetch_sub(&tt_recompile_suspects, 1);
    warn(s);
    free(s->text);
    free(s);
  }
}

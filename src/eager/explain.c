// What happened, counted by what it was and where in the program.
#include "eager/explain.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/thread.h"

enum { PENDING = 16, PLACE_SIZE = 512 };

typedef struct key {
  int32_t kind;
  char text[];  // what, and place behind its zero
} key;
typedef struct entry {
  tt_note note;
  key key;
} entry;

atomic_bool tt_explain_on;
static _Atomic(tt_locator) locator;

static tt_mutex lock = TT_MUTEX_INIT;
static tt_map entries;  // by key
static entry **order;   // in the order of their first note
static int32_t order_count, order_capacity;
static uint64_t epoch;

// Notes that have no place yet.
static _Thread_local struct {
  uint64_t epoch;
  int32_t count;
  struct {
    tt_note_kind kind;
    const char *what;
    int64_t count, amount;
  } notes[PENDING];
} pending;
static _Thread_local bool reads_item, has_no_place;

// ---- places ----
void tt_set_locator(tt_locator function) { atomic_store(&locator, function); }

void tt_locate_never(void) { has_no_place = true; }

int32_t tt_locate(char *out, size_t size) {
  out[0] = '\0';
  tt_locator function = has_no_place ? NULL : atomic_load(&locator);
  int32_t flags = function ? function(out, size) : -1;
  out[size - 1] = '\0';
  return flags;
}

// ---- taking notes ----
static entry *make_entry(tt_note_kind kind, const char *what, const char *place, size_t *out_key_size) {
  size_t what_size = strlen(what) + 1, place_size = strlen(place) + 1;
  *out_key_size = sizeof(key) + what_size + place_size;
  entry *made = calloc(1, sizeof *made + what_size + place_size);
  if (made) {
    made->key.kind = kind;
    memcpy(made->key.text, what, what_size);
    memcpy(made->key.text + what_size, place, place_size);
    made->note = (tt_note){.kind = kind, .what = made->key.text, .place = made->key.text + what_size};
  }
  return made;
}

static bool append(entry *made) {
  if (order_count == order_capacity) {
    int32_t capacity = order_capacity ? 2 * order_capacity : 64;
    entry **grown = realloc(order, sizeof *order * (size_t)capacity);
    if (!grown) {
      return false;
    }
    order = grown;
    order_capacity = capacity;
  }
  order[order_count++] = made;
  return true;
}

// Without memory a note is lost, no more.
static void add(uint64_t at_epoch, tt_note_kind kind, const char *what, const char *place, int64_t count,
                int64_t amount) {
  size_t key_size;
  entry *made = make_entry(kind, what, place, &key_size);
  if (!made) {
    return;
  }
  tt_mutex_lock(&lock);
  entry *found = tt_map_get(&entries, &made->key, key_size);
  if (!found && at_epoch == epoch && tt_map_set(&entries, &made->key, key_size, made, NULL)) {
    if (append(made)) {
      found = made;
      made = NULL;
    } else {
      tt_map_remove(&entries, &made->key, key_size);
    }
  }
  if (found && at_epoch == epoch) {
    found->note.count += count;
    found->note.amount += amount;
  }
  tt_mutex_unlock(&lock);
  free(made);
}

static uint64_t current_epoch(void) {
  tt_mutex_lock(&lock);
  uint64_t now = epoch;
  tt_mutex_unlock(&lock);
  return now;
}

void tt_explain_note_slow(tt_note_kind kind, const char *what, int64_t amount) {
  uint64_t now = current_epoch();
  if (pending.epoch != now) {
    pending.epoch = now;
    pending.count = 0;
  }
  for (int32_t i = 0; i < pending.count; i++) {
    if (pending.notes[i].kind == kind && pending.notes[i].what == what) {
      pending.notes[i].count++;
      pending.notes[i].amount += amount;
      return;
    }
  }
  if (pending.count == PENDING) {
    add(now, kind, what, "", 1, amount);
    return;
  }
  pending.notes[pending.count].kind = kind;
  pending.notes[pending.count].what = what;
  pending.notes[pending.count].count = 1;
  pending.notes[pending.count++].amount = amount;
}

void tt_explain_place_slow(void) {
  if (!pending.count) {
    return;
  }
  char place[PLACE_SIZE];
  tt_locate(place, sizeof place);
  for (int32_t i = 0; i < pending.count; i++) {
    add(pending.epoch, pending.notes[i].kind, pending.notes[i].what, place, pending.notes[i].count,
        pending.notes[i].amount);
  }
  pending.count = 0;
}

void tt_explain_fallback(const char *op) {
  if (tt_explain_enabled()) {
    char place[PLACE_SIZE];
    tt_locate(place, sizeof place);
    add(current_epoch(), TT_NOTE_FALLBACK, op, place, 1, 0);
  }
}

void tt_explain_item(void) { reads_item = tt_explain_enabled(); }

void tt_explain_cut_by_read(void) {
  tt_explain_note(TT_NOTE_CUT, reads_item ? "host read: item()" : "host read: copy to the host", 0);
}

void tt_explain_read(int64_t nbytes) {
  tt_explain_note(TT_NOTE_SYNC, reads_item ? "item()" : "copy to the host", nbytes);
  reads_item = false;
}

// ---- the whole ----
void tt_explain_start(void) {
  tt_mutex_lock(&lock);
  epoch++;
  tt_map_free(&entries, free);
  order_count = 0;
  tt_mutex_unlock(&lock);
  atomic_store(&tt_explain_on, true);
}

void tt_explain_stop(void) { atomic_store(&tt_explain_on, false); }

bool tt_explain_note_at(int32_t index, tt_note *out_note) {
  tt_mutex_lock(&lock);
  bool found = index >= 0 && index < order_count;
  if (found) {
    *out_note = order[index]->note;
  }
  tt_mutex_unlock(&lock);
  return found;
}

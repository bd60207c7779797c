// Places where a stretch ends by the content of the program: the least hash within a window to either side.
#include "base/hash.h"
#include "eager/fused.h"

enum { RING_MASK = TT_CUT_RING - 1 };

static inline uint64_t hash_at(const tt_cuts *c, uint64_t step) { return c->hashes[step & RING_MASK]; }

// Of the last TT_CUT_RECORDS records: a polynomial in their hashes, which another one extends by two products, mixed.
_Static_assert(TT_CUT_RECORDS == 8, "the power of the oldest");
static uint64_t hash_recent(tt_cuts *c, uint64_t record_hash) {
  const uint64_t k = TT_HASH_K1, k2 = k * k, k4 = k2 * k2;
  uint64_t *oldest = &c->recent[c->count % TT_CUT_RECORDS];
  c->rolling = c->rolling * k + record_hash - *oldest * (k4 * k4);
  *oldest = record_hash;
  return tt_hash_combine(0, c->rolling);
}

// Whether the same hash stands near. Behind it as well: cut at its first repetition, a chain would be cut into pieces,
// since the next piece begins like the first.
static bool repeats(const tt_cuts *c, uint64_t step) {
  uint64_t hash = hash_at(c, step);
  for (uint64_t i = 1; i < TT_CUT_NEAR; i++) {
    if ((i <= step && hash_at(c, step - i) == hash) || hash_at(c, step + i) == hash) {
      return true;
    }
  }
  return false;
}

bool tt_cuts_push(tt_cuts *c, uint64_t record_hash) {
  uint64_t hash = hash_recent(c, record_hash), step = c->count++;
  c->hashes[step & RING_MASK] = hash;
  while (c->head != c->tail && hash_at(c, c->least[(c->tail - 1) & RING_MASK]) > hash) {
    c->tail--;
  }
  c->least[c->tail++ & RING_MASK] = step;
  while (c->least[c->head & RING_MASK] + 2 * TT_CUT_WINDOW < step) {
    c->head++;
  }
  if (step < 2 * TT_CUT_WINDOW) {
    return false;
  }
  uint64_t middle = step - TT_CUT_WINDOW;
  return hash_at(c, middle) == hash_at(c, c->least[c->head & RING_MASK]) && !repeats(c, middle);
}

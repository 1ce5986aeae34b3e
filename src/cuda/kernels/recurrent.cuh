// Sequences of a pass, and the states that recurrent layers have of them.
//
// A state has a slot, `stride` floats wide; every operation has its own part of it, from `offset` on. A block of threads belongs to a
// row of the pass; where that is the first of a sequence, it goes through all rows of the sequence in order, and otherwise it ends.
// Nothing is read of a slot of a sequence that begins: its state is zero.
#pragma once

#include "libm.cuh"

// Where states are: slot and whether it is a new sequence's, for each sequence of the pass.
struct States {
  float *all;
  const uint2 *slots;
  u32 stride, offset;
};

// The rows of a sequence, and its part of the states.
struct Sequence {
  int first, end;
  bool fresh;
  float *state;

  // A number of the state before the first row.
  INLINE float before(u64 i) const { return fresh ? 0.0f : state[i]; }
};

// Sequence and position of a row.
INLINE bool follows(const uint2 *places, int row) { return row > 0 && places[row - 1].x == places[row].x; }

// The state of the sequence that a row belongs to.
INLINE Sequence sequence_at(const States &states, const uint2 *places, int row) {
  Sequence s;
  const uint2 slot = states.slots[places[row].x];
  s.first = row;
  s.end = row;
  s.fresh = slot.y != 0;
  s.state = states.all + (u64)slot.x * states.stride + states.offset;
  return s;
}

// The sequence whose first row this is.
INLINE Sequence sequence_from(const States &states, const uint2 *places, int row, int rows) {
  Sequence s = sequence_at(states, places, row);
  s.end = row + 1;
  while (s.end < rows && follows(places, s.end))
    ++s.end;
  return s;
}

// The pairs of arguments that every kernel over sequences ends with.
#define OF_SEQUENCES float *all, const uint2 *slots, const uint2 *places, u32 stride, u32 offset, int rows
#define STATES States{all, slots, stride, offset}

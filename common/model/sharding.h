// Divides the flat vector of variables into shards (one for each ps task), and each shard into
// chunks (the unit of push and pull). Pure functions and a value type.
#ifndef PUSHPULL_COMMON_MODEL_SHARDING_H_
#define PUSHPULL_COMMON_MODEL_SHARDING_H_

#include <cstdint>

namespace pushpull {

// A half-open range of elements of the flat vector.
struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

// The chunks of a shard have these sizes; the last one may be shorter:
//
//   chunks 0, 1, 2, 3   1/8, 1/8, 1/4, 1/2 of Sharding::kChunkElements
//   chunks 4, 5, ...    Sharding::kChunkElements
//
// The first chunks are small because a step ends with the push of chunk 0 and the pull of chunk 0:
// they hold the layers where the backward pass ends and the forward pass begins. These layers have
// few variables and most of the computation.

// Returns the number of chunks of a shard of `elements` elements. It is at least 1, because the
// chunk of an empty shard still carries the key and the commit of a push.
int NumChunks(int64_t elements);
// Returns the elements of a chunk, counted from the start of the shard.
ElementRange ChunkRange(int64_t elements, int chunk);
// Returns the chunk that holds an element, counted from the start of the shard.
int ChunkOf(int64_t element);

// Divides the flat vector into contiguous shards that begin at multiples of a page (4096 bytes).
// They have the same size, except that the last ones may be shorter or empty. A tensor may span
// shards. An immutable value, cheap to copy.
class Sharding {
 public:
  static constexpr int64_t kPageElements = 1024;
  static constexpr int64_t kChunkElements = 262144;  // size of chunks 4, 5, ...
  static constexpr int64_t kChunkBytes = kChunkElements * 4;
  static constexpr int64_t kFirstChunkElements = kChunkElements / 8;

  // total_elements >= 0, tasks >= 1.
  Sharding(int64_t total_elements, int tasks);

  int tasks() const { return tasks_; }
  int64_t total_elements() const { return total_elements_; }
  // Returns the elements of a shard. Shards may be empty, for example with more tasks than pages.
  ElementRange shard(int shard) const;
  int num_chunks(int shard) const { return NumChunks(this->shard(shard).size()); }
  // Returns the elements of a chunk, counted from the start of the flat vector (not of the shard).
  ElementRange chunk(int shard, int chunk) const;

 private:
  int64_t total_elements_;
  int64_t shard_elements_;
  int tasks_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_SHARDING_H_

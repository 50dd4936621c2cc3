// Cuts the flat vector of variables into shards (one per ps task) and chunks (the unit of push and
// pull).
#ifndef PUSHPULL_COMMON_SHARDING_H_
#define PUSHPULL_COMMON_SHARDING_H_

#include <cstdint>

namespace pushpull {

// A half-open range of elements of the flat vector.
struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

// Shards and what is pulled of them are cut into chunks alike: the first four together are as large
// as each of the others, 1/8, 1/8, 1/4 and 1/2 of it; the last one may be shorter. A step's end is
// the push of chunk 0 and the pull of chunk 0, which hold the layers where backward ends and
// forward begins: little to carry and most of the computing.
//
// Chunks of so many elements; at least 1: an empty chunk still carries the key and the commit.
int NumChunks(int64_t elements);
// From the first of them.
ElementRange ChunkRange(int64_t elements, int chunk);
// The chunk that holds an element.
int ChunkOf(int64_t element);

// Shards are contiguous, page aligned (4096 bytes) and of equal size but for the last ones; a
// tensor may span shards. A value; cheap to copy.
class Sharding {
 public:
  static constexpr int64_t kPageElements = 1024;
  static constexpr int64_t kChunkElements = 262144;  // of the larger chunks
  static constexpr int64_t kChunkBytes = kChunkElements * 4;
  static constexpr int64_t kFirstChunkElements = kChunkElements / 8;

  // total_elements >= 0, tasks >= 1.
  Sharding(int64_t total_elements, int tasks);

  int tasks() const { return tasks_; }
  int64_t total_elements() const { return total_elements_; }
  // May be empty when there are more tasks than pages.
  ElementRange shard(int shard) const;
  // Shard that holds the element.
  int ShardOf(int64_t element) const;
  int num_chunks(int shard) const { return NumChunks(this->shard(shard).size()); }
  // In elements of the flat vector (not of the shard).
  ElementRange chunk(int shard, int chunk) const;

 private:
  int64_t total_elements_;
  int64_t shard_elements_;
  int tasks_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_SHARDING_H_

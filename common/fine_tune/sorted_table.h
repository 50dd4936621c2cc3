// Reads the sorted string tables in which TensorFlow keeps a checkpoint's index (the format of
// LevelDB's tables):
//
//   data blocks | metaindex block | index block | footer
//   block    entries, restart offsets (uint32 each), their number (uint32); then one byte of
//            compression (0: none) and the masked CRC32C of block and byte
//   entry    varint shared, varint unshared, varint value size; unshared key bytes; value
//   footer   48 bytes: two block handles (varint offset, varint size), zeros, magic (uint64
//            0xdb4775248b80fb57)
//
// All little-endian. The index block's values are the handles of the data blocks.
#ifndef PUSHPULL_COMMON_FINE_TUNE_SORTED_TABLE_H_
#define PUSHPULL_COMMON_FINE_TUNE_SORTED_TABLE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

using TableEntry = std::pair<std::string, std::string>;  // key, value

// All entries in order. `path` is for messages. DATA_LOSS names what is wrong: magic, a handle
// outside the file, a checksum, an entry that leaves its block, keys that do not ascend or
// that would take far more memory than the file.
// UNIMPLEMENTED: a compressed block.
absl::StatusOr<std::vector<TableEntry>> ReadSortedTable(absl::string_view file,
                                                        absl::string_view path);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_FINE_TUNE_SORTED_TABLE_H_

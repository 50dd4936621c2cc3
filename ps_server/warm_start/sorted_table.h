// Reads sorted string tables, the format of TensorFlow's checkpoint indices. It is the table format
// of leveldb (doc/table_format.md there):
//
// clang-format off
//   file     data blocks | metaindex block | index block | footer
//   block    entries | restart offsets (uint32 each) | their number (uint32); after the block
//            follow one byte of compression (0: none) and the masked CRC32C of block and byte
//   entry    varint shared | varint unshared | varint value size | unshared key bytes | value;
//            the key is the first `shared` bytes of the previous key and the unshared bytes
//   footer   48 bytes: handles of metaindex and index block (varint offset, varint size) | zeros |
//            magic (uint64 0xdb4775248b80fb57)
// clang-format on
//
// All numbers are little-endian. The values in the index block are the handles of the data blocks.
// Pure functions.
#ifndef PUSHPULL_PS_SERVER_WARM_START_SORTED_TABLE_H_
#define PUSHPULL_PS_SERVER_WARM_START_SORTED_TABLE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

using TableEntry = std::pair<std::string, std::string>;  // key, value

// Returns all entries in order; `path` is used in messages only. DATA_LOSS: a wrong magic number or
// checksum, a handle outside the file, an entry that leaves its block, keys that do not ascend, or
// keys that would take far more memory than the file. UNIMPLEMENTED: a compressed block.
absl::StatusOr<std::vector<TableEntry>> ReadSortedTable(absl::string_view file,
                                                        absl::string_view path);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WARM_START_SORTED_TABLE_H_

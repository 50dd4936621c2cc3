// Reads the graph of objects in a checkpoint that tf.train.Checkpoint of TensorFlow 2 has written,
// for the names of its variables. Pure functions.
#ifndef PUSHPULL_PS_SERVER_WARM_START_OBJECT_GRAPH_H_
#define PUSHPULL_PS_SERVER_WARM_START_OBJECT_GRAPH_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// The tensor that holds the graph: a scalar string.
inline constexpr char kObjectGraphKey[] = "_CHECKPOINTABLE_OBJECT_GRAPH";

// Returns the names of the variables by the keys of their tensors. `bytes` is the tensor as a data
// file holds it: a varint64 with the length of the string, the masked CRC32C of that length as a
// uint32, and the string. `crc32c` is the checksum in the index: over the length as a uint32, its
// checksum, and the string. Variables without a name are left out. DATA_LOSS: the tensor is
// damaged; `path` is used in the message.
absl::StatusOr<std::map<std::string, std::string>> ReadObjectGraph(absl::string_view bytes,
                                                                   uint32_t crc32c,
                                                                   absl::string_view path);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WARM_START_OBJECT_GRAPH_H_

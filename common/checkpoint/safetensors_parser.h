// Parses the JSON of a safetensors header. An implementation detail of
// common/checkpoint/safetensors.h.
//
// The parser works event by event (SAX) and stops at the first event that the format does not
// allow, so hostile input cannot make it build a large tree.
#ifndef PUSHPULL_COMMON_CHECKPOINT_SAFETENSORS_PARSER_H_
#define PUSHPULL_COMMON_CHECKPOINT_SAFETENSORS_PARSER_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "common/checkpoint/safetensors.h"

namespace pushpull {

// Fills header->tensors, in the order of the text, and header->metadata. Checks syntax, types and
// repeated fields within an object. The caller must check repeated tensor names, shapes and
// offsets. DATA_LOSS: the text is not a safetensors header.
absl::Status ParseSafetensorsJson(absl::string_view json, SafetensorsHeader* header);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CHECKPOINT_SAFETENSORS_PARSER_H_

// Checks the bytes of a pushed chunk. Thread-safe, without state. Reads every byte twice, for the
// checksum and for the values, so the runtime calls it outside its lock and hands the verdict to
// ShardAggregator::PushChunk.
#ifndef PUSHPULL_PS_SERVER_CORE_CHUNK_VERIFIER_H_
#define PUSHPULL_PS_SERVER_CORE_CHUNK_VERIFIER_H_

#include "absl/status/status.h"

#include "common/base/payload.h"
#include "common/model/sharding.h"
#include "common/model/variable_layout.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

// Checks `payload` against `header`, the message of the chunk without its payload.
//   BAD_CHUNK: there is no such chunk or encoding, or the sharding gives the chunk another length
//   BAD_CHECKSUM: the CRC32C of the payload differs from the one in the header
//   NON_FINITE: the payload has a NaN or infinity; names the variable and element (C order) of the
//     first one
absl::Status VerifyChunk(const ps::PushChunk& header, const Payload& payload,
                         const VariableLayout& layout, const Sharding& sharding);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_CHUNK_VERIFIER_H_

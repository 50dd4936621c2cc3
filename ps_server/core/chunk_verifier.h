// Checks the bytes of a pushed chunk. Pure; reads every byte once for the checksum and once for the
// values, so the runtime calls it outside its lock and hands the verdict to
// ShardAggregator::PushChunk.
#ifndef PUSHPULL_PS_SERVER_CORE_CHUNK_VERIFIER_H_
#define PUSHPULL_PS_SERVER_CORE_CHUNK_VERIFIER_H_

#include "absl/status/status.h"

#include "common/payload.h"
#include "common/sharding.h"
#include "common/variable_layout.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

// `header` is the chunk's, without its payload. BAD_CHUNK: no such chunk or encoding, or another
// length than the sharding gives it. BAD_CHECKSUM: the header's is not the payload's. NON_FINITE:
// names the variable and the element (C order) of the first NaN or infinity.
absl::Status VerifyChunk(const ps::PushChunk& header, const Payload& payload,
                         const VariableLayout& layout, const Sharding& sharding);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_CHUNK_VERIFIER_H_

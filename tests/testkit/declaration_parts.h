// The messages with which a clone declares the variables of an external model.
#ifndef PUSHPULL_TESTS_TESTKIT_DECLARATION_PARTS_H_
#define PUSHPULL_TESTS_TESTKIT_DECLARATION_PARTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/variable_layout.h"
#include "common/wire/ps_client.h"

namespace pushpull {

struct DeclaringClone {
  std::string run_id = {};
  uint32_t worker_id = 0;
  uint64_t session = 1;
  std::string peer_name = "test";
  int64_t part_elements = 1000;
};

// Values to declare, as the layout's flat vector: they depend on the place and on `seed`.
std::vector<float> ValuesFor(const VariableLayout& layout, uint64_t seed);

// Returns the parts in order. `values` is the layout's flat vector.
std::vector<ps::DeclareRequest> DeclarationParts(const VariableLayout& layout,
                                                 const std::vector<float>& values,
                                                 const DeclaringClone& clone);

// Does what the client library does: asks for the job until the server answers, then sends the
// parts and repeats after UNAVAILABLE, until the server has declared the variables. Does not ask
// for the job if clone.run_id is set. Returns other errors and DRAINING, which the client library
// repeats at the next server, and DEADLINE_EXCEEDED after a minute.
absl::Status Declare(PsClient* client, const VariableLayout& layout,
                     const std::vector<float>& values, DeclaringClone clone);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_DECLARATION_PARTS_H_

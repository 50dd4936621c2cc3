// Collects the variables of an external model and their initial values from the parts that one
// clone sends (ps.DeclareRequest in protos/parameter_server.proto).
//
// clang-format off
//     empty      no clone has the turn
//     begun      A clone has sent the first part and has the turn. It loses the turn to another clone's
//                first part when nothing of it has come for the length of a lease.
//     complete   All values are there. Nothing changes any more.
// clang-format on
//
// A part extends the values only if it begins where they end. Any other part changes nothing, and
// the reply says where to go on, so repeated, late and lost parts do no harm. The first part is the
// one with the list of variables. It always begins anew, because a restarted process of the same
// clone may have drawn other values.
//
// A pure state machine without threads, files or a clock. Not thread-safe.
#ifndef PUSHPULL_PS_SERVER_CORE_DECLARATION_H_
#define PUSHPULL_PS_SERVER_CORE_DECLARATION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/model/variable_layout.h"
#include "common/wire/default_lease.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

struct DeclarationOptions {
  std::string run_id;  // 16 bytes
  absl::Duration lease = kDefaultLease;
  int64_t max_elements = 0;  // of all variables, without padding
  // A further check of the variables, whose error refuses them.
  std::function<absl::Status(const VariableLayout&)> check_layout;
};

class Declaration {
 public:
  static constexpr size_t kMaxPartBytes = size_t{512} << 10;

  explicit Declaration(DeclarationOptions options) : options_(std::move(options)) {}

  // Takes a part that has come at the time `now`. The reply's `declared` is never set. Once
  // complete, every part of this run gets the number of all elements. An error changes nothing but,
  // if the part is of the clone that has the turn, the time at which it was heard of last. Errors:
  //   WRONG_RUN         another run_id
  //   NOT_READY         another clone has the turn
  //   BAD_CHECKSUM      CRC32C of the values
  //   NON_FINITE        the first value that is not finite, with its variable
  //   INVALID_ARGUMENT  the variables cannot be declared, there are too many elements, or the
  //                     values have a wrong length
  absl::StatusOr<ps::DeclareReply> Take(const ps::DeclareRequest& part, absl::Duration now);

  bool complete() const { return declared_.has_value() && declared_->complete(); }
  // To be called when complete. TakeValues returns the initial values as the layout's flat vector,
  // once.
  const VariableLayout& layout() const { return declared_->layout; }
  std::vector<float> TakeValues() { return std::move(declared_->values); }

  // What the server waits for, as words that follow "waiting for".
  std::string WaitingFor() const;

 private:
  // The clone that has the turn.
  struct Clone {
    uint32_t worker_id = 0;
    uint64_t session = 0;
    std::string peer_name;
    absl::Duration last_heard;
  };

  struct Declared {
    explicit Declared(VariableLayout layout);
    bool complete() const { return elements == num_elements; }
    // Appends the values, which begin at element `elements`. NON_FINITE, INVALID_ARGUMENT: as Take;
    // nothing has changed.
    absl::Status Append(const std::string& bytes);
    absl::Status NonFiniteError(int64_t element, float value) const;

    VariableLayout layout;
    int64_t num_elements = 0;   // of all variables, without padding
    int64_t elements = 0;       // that have come, without padding
    int64_t variable = 0;       // index of the variable to which the last element belongs
    std::vector<float> values;  // the first elements of the flat vector, padding included
  };

  absl::Status CheckPart(const ps::DeclareRequest& part) const;
  // Gives the turn to the sender of a first part.
  absl::Status Begin(const ps::DeclareRequest& part, absl::Duration now);
  bool HasTurn(const ps::DeclareRequest& part) const;

  const DeclarationOptions options_;
  std::optional<Clone> clone_;
  std::optional<Declared> declared_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_DECLARATION_H_

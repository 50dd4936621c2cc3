// The memory of a shard's state: a mapped and locked file, or anonymous memory. This class deals in
// bytes and knows nothing of versions.
//
// A file that an earlier process left is either used as it is or not touched. If it does not fit or
// does not exist, the state goes to a new file, whose name ends in kNewSuffix. AdoptFile gives that
// file its final name once it holds something worth keeping. A file that had the name before is
// renamed, never shortened or removed.
#ifndef PUSHPULL_PS_SERVER_STORE_STATE_MAPPING_H_
#define PUSHPULL_PS_SERVER_STORE_STATE_MAPPING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "ps_server/store/state_file.h"

namespace pushpull {

// Thread-compatible. Keeps the file locked and mapped until destruction. The destructor removes a
// new file that was never adopted.
class StateMapping {
 public:
  // Maps state_dir/name if its header equals `header` in meaning; otherwise makes a new file that
  // holds no version. Uses anonymous memory, and logs why, if state_dir is empty or if the folder
  // or the new file cannot be made. A file whose header cannot be read counts as one that does not
  // fit. Waits up to 200 ms for the lock of each file.
  //   FAILED_PRECONDITION: another process has the file open; or the file is not a regular file of
  //     this user; or the folder belongs to another user, or others can rename files in it
  //   UNAVAILABLE: the folder cannot be inspected, or a file exists and cannot be opened or mapped.
  //     It is untouched. It may hold the only copy of the state, so nothing is used in its place.
  //   RESOURCE_EXHAUSTED: there is no memory
  static absl::StatusOr<std::unique_ptr<StateMapping>> Open(const std::string& state_dir,
                                                            const std::string& name,
                                                            const StateHeader& header);
  ~StateMapping();
  StateMapping(const StateMapping&) = delete;
  StateMapping& operator=(const StateMapping&) = delete;

  char* data() const { return data_; }
  StateControl* control() const {
    return reinterpret_cast<StateControl*>(data_ + kStateControlOffset);
  }
  bool is_file() const { return fd_ >= 0; }
  const std::string& path() const { return path_; }
  // Returns why no earlier state was taken over; empty if it was.
  const std::string& fresh_reason() const { return fresh_reason_; }
  // Returns the newest version of a file that has the name and is of this run, but does not fit.
  std::optional<uint64_t> unfit_version() const { return unfit_version_; }

  // Separates the readers of a piece of the state from its writer. `readers` is the address of the
  // piece, page-aligned, and `offset` its place in the state. The readers keep the address and the
  // contents, in private memory. The state continues at the returned address, with the same
  // contents; that address is valid as long as this object. Every call must have the same
  // size_bytes.
  //   RESOURCE_EXHAUSTED: there is no memory; nothing has changed
  absl::StatusOr<char*> Detach(char* readers, int64_t offset, int64_t size_bytes);
  // Frees the memory of a detached piece that nobody reads any more. A later Detach reuses its
  // addresses.
  void Discard(char* readers, int64_t size_bytes);

  // Gives a new file its final name. A file that had the name is renamed beside it, which is
  // logged. A file that was taken over gets the path of its train_dir, and its identity if it had
  // none. Does nothing otherwise, or if the memory is anonymous. After an error the contents are
  // safe in the new file, but the next process does not use them; AdoptFile may be called again.
  // FAILED_PRECONDITION: it will fail again until somebody removes the cause.
  absl::Status AdoptFile();

  // Unlinks the file; the mapping stays. A file that was set aside stays too. OK if there is none.
  absl::Status RemoveFile();

 private:
  StateMapping(std::string path, std::string new_path, int64_t size_bytes)
      : path_(std::move(path)), new_path_(std::move(new_path)), size_(size_bytes) {}

  // Maps the file of an earlier process if there is one that fits. Otherwise returns OK with
  // fd_ < 0, and fresh_reason_ says why.
  absl::Status TakeOverFile(const StateHeader& header);
  // Makes and maps an empty new file. Sets fd_ unless it returns an error.
  absl::Status MakeFile(const StateHeader& header);
  // Has AdoptFile write the folder of `header` into a mapped file that has another path or none.
  void NoteFolder(const StateHeader& header);
  absl::Status MapFile(int fd, const std::string& path);
  absl::Status MapAnonymous(const StateHeader& header);
  // Returns private memory, zeroed or a discarded piece, that is released with this object; null if
  // there is none.
  char* TakePiece(int64_t size_bytes);

  const std::string path_;
  const std::string new_path_;
  const int64_t size_;
  int fd_ = -1;          // of the mapped file; -1 for anonymous memory
  int other_fd_ = -1;    // of a file that has the name but does not fit; keeps that file locked
  bool is_new_ = false;  // the mapped file is still called new_path_
  std::optional<StateHeader> new_header_;  // what AdoptFile writes into a file that was taken over
  char* data_ = nullptr;
  std::vector<std::pair<char*, int64_t>> pieces_;  // mapped by TakePiece
  std::vector<char*> discarded_;                   // pieces that the next Detach may reuse
  std::string fresh_reason_;
  std::optional<uint64_t> unfit_version_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_STORE_STATE_MAPPING_H_

// Tested by tests/common/checkpoint/safetensors_test.cc.
#include "common/checkpoint/safetensors_parser.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace pushpull {
namespace {

constexpr size_t kMaxRank = 64;

class HeaderHandler {
 public:
  explicit HeaderHandler(SafetensorsHeader* header) : header_(header) {}

  const std::string& error() const { return error_; }

  bool null() { return Unexpected("null"); }
  bool boolean(bool) { return Unexpected("a boolean"); }
  bool number_integer(int64_t) { return Unexpected("a negative number"); }
  bool number_float(double, const std::string&) { return Unexpected("a fraction"); }
  bool binary(std::vector<uint8_t>&) { return Unexpected("binary data"); }

  bool number_unsigned(uint64_t value) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Unexpected("a number past 2^63");
    }
    if (place_ == Place::kShape && tensor_.shape.size() < kMaxRank) {
      tensor_.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (place_ == Place::kOffsets && num_offsets_ < 2) {
      (num_offsets_ == 0 ? tensor_.begin : tensor_.end) = static_cast<int64_t>(value);
      ++num_offsets_;
      return true;
    }
    return Unexpected("a number");
  }

  bool string(std::string& value) {
    if (place_ == Place::kMetadataValue) {
      if (!header_->metadata.emplace(key_, std::move(value)).second) {
        return Fail(absl::StrCat("key ", key_, " occurs twice in __metadata__"));
      }
      place_ = Place::kMetadata;
      return true;
    }
    if (place_ == Place::kDtype) {
      tensor_.dtype = std::move(value);
      place_ = Place::kTensor;
      return true;
    }
    return Unexpected("a string");
  }

  bool key(std::string& name) {
    switch (place_) {
      case Place::kTop:
        if (name == "__metadata__") {
          if (std::exchange(seen_metadata_, true)) return Fail("__metadata__ occurs twice");
          place_ = Place::kMetadataStart;
        } else {
          tensor_ = SafetensorsTensor();
          tensor_.name = std::move(name);
          seen_fields_ = 0;
          num_offsets_ = 0;
          place_ = Place::kTensorStart;
        }
        return true;
      case Place::kMetadata:
        key_ = std::move(name);
        place_ = Place::kMetadataValue;
        return true;
      case Place::kTensor:
        return Field(name);
      default:
        return Unexpected("a key");
    }
  }

  bool start_object(size_t) {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kTop;
        return true;
      case Place::kMetadataStart:
        place_ = Place::kMetadata;
        return true;
      case Place::kTensorStart:
        place_ = Place::kTensor;
        return true;
      default:
        return Unexpected("an object");
    }
  }

  bool end_object() {
    if (place_ == Place::kTop) {
      place_ = Place::kEnd;
      return true;
    }
    if (place_ == Place::kTensor) {
      if (seen_fields_ != kAllFields || num_offsets_ != 2) {
        return Fail(absl::StrCat("tensor ", tensor_.name,
                                 " lacks one of dtype, shape, data_offsets [begin, end]"));
      }
      header_->tensors.push_back(std::move(tensor_));
    }
    place_ = Place::kTop;
    return true;
  }

  bool start_array(size_t) {
    if (place_ == Place::kShapeStart) {
      place_ = Place::kShape;
      return true;
    }
    if (place_ == Place::kOffsetsStart) {
      place_ = Place::kOffsets;
      return true;
    }
    return Unexpected("an array");
  }

  bool end_array() {
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) {
    return Fail(absl::StrCat("not JSON at byte ", position));
  }

 private:
  // The place in the header where the next event belongs. The places that end in Start expect an
  // opening bracket.
  enum class Place {
    kStart,
    kTop,
    kMetadataStart,
    kMetadata,
    kMetadataValue,
    kTensorStart,
    kTensor,
    kDtype,
    kShapeStart,
    kShape,
    kOffsetsStart,
    kOffsets,
    kEnd,
  };
  static constexpr int kDtypeField = 1;
  static constexpr int kShapeField = 2;
  static constexpr int kOffsetsField = 4;
  static constexpr int kAllFields = 7;

  bool Field(const std::string& name) {
    int field = 0;
    if (name == "dtype") {
      field = kDtypeField;
      place_ = Place::kDtype;
    } else if (name == "shape") {
      field = kShapeField;
      place_ = Place::kShapeStart;
    } else if (name == "data_offsets") {
      field = kOffsetsField;
      place_ = Place::kOffsetsStart;
    }
    if (field == 0 || (seen_fields_ & field) != 0) {
      return Fail(absl::StrCat("tensor ", tensor_.name, ": field ", name,
                               field == 0 ? " is unknown" : " occurs twice"));
    }
    seen_fields_ |= field;
    return true;
  }

  bool Fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    return false;
  }

  bool Unexpected(absl::string_view what) {
    return Fail(
        absl::StrCat("unexpected ", what,
                     tensor_.name.empty() ? "" : absl::StrCat(" near tensor ", tensor_.name)));
  }

  SafetensorsHeader* header_;
  Place place_ = Place::kStart;
  SafetensorsTensor tensor_;
  std::string key_;
  int seen_fields_ = 0;
  int num_offsets_ = 0;
  bool seen_metadata_ = false;
  std::string error_;
};

}  // namespace

absl::Status ParseSafetensorsJson(absl::string_view json, SafetensorsHeader* header) {
  if (json.empty() || json.front() != '{') {
    return absl::DataLossError("the safetensors header does not begin with {");
  }
  // The JSON library takes a zero byte for the end of its input and would ignore what follows.
  if (json.find('\0') != absl::string_view::npos) {
    return absl::DataLossError("the safetensors header holds a zero byte");
  }
  HeaderHandler handler(header);
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &handler)) {
    return absl::DataLossError(absl::StrCat("safetensors header: ", handler.error()));
  }
  return absl::OkStatus();
}

}  // namespace pushpull

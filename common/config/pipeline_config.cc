#include "common/config/pipeline_config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/text_format.h"

#include "common/base/passing_error.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/config/config_problem.h"
#include "common/config/nearest_name.h"
#include "common/config/text_position.h"

namespace pushpull {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Far above what configs need: the largest in deploy/pipelines has 4 KiB and is 7 levels deep.
constexpr int64_t kMaxBytes = int64_t{1} << 20;
constexpr int kMaxNesting = 100;
// Errors show at most this much of a word or message.
constexpr size_t kMaxShownBytes = 300;

// Returns "job.config:12:3", counted from 1 as editors do.
std::string Location(absl::string_view name, TextPoint point) {
  return absl::StrCat(name, ":", point.line + 1, ":", point.column + 1);
}

std::string Shortened(absl::string_view text) {
  if (text.size() <= kMaxShownBytes) return std::string(text);
  return absl::StrCat(text.substr(0, kMaxShownBytes), "... (", text.size(), " bytes)");
}

// Says in a message of the parser what it found where it found the end of the text.
std::string WithEndNamed(absl::string_view message) {
  constexpr absl::string_view kEnd = "the end of the text";
  if (absl::ConsumeSuffix(&message, "found \"\"")) return absl::StrCat(message, "found ", kEnd);
  return absl::StrCat(message, absl::EndsWith(message, "got: ") ? kEnd : "");
}

// Refuses text for which the parser's time or stack would have no bound.
absl::Status CheckLimits(const std::string& text, absl::string_view name) {
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": a pipeline config may have at most ",
                                                   kMaxBytes, " bytes, this one has more"));
  }
  if (absl::StrContains(text, '\0')) {
    const bool is_utf16 = absl::StartsWith(text, "\xff\xfe") || absl::StartsWith(text, "\xfe\xff");
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": expected protobuf text, got a zero byte at offset ", text.find('\0'),
                     is_utf16 ? "; the file is UTF-16: save it as UTF-8" : ""));
  }
  if (const std::optional<TextPoint> point = FindDeeperThan(text, kMaxNesting)) {
    return absl::InvalidArgumentError(absl::StrCat(Location(name, *point),
                                                   ": messages and lists are nested more than ",
                                                   kMaxNesting, " deep"));
  }
  return absl::OkStatus();
}

// Returns the descriptor of the message at the path `fields`, or null if a field on it is unknown
// or not a message.
const Descriptor* DescriptorAt(const std::vector<std::string>& fields) {
  const Descriptor* descriptor = config::TrainEvalPipelineConfig::descriptor();
  for (const std::string& name : fields) {
    const FieldDescriptor* field = descriptor->FindFieldByName(name);
    if (field == nullptr || field->message_type() == nullptr) return nullptr;
    descriptor = field->message_type();
  }
  return descriptor;
}

std::vector<std::string> FieldNames(const Descriptor& descriptor) {
  std::vector<std::string> names;
  for (int i = 0; i < descriptor.field_count(); ++i) names.push_back(descriptor.field(i)->name());
  return names;
}

// Returns the words in double quotes in a message of the parser.
std::vector<std::string> QuotedWords(const std::string& message) {
  const std::vector<std::string> parts = absl::StrSplit(message, '"');
  std::vector<std::string> words;
  for (size_t i = 1; i + 1 < parts.size(); i += 2) words.push_back(parts[i]);
  return words;
}

// Collects the text parser's errors, and its warnings about unknown fields and extensions, as lines
// that name the field. It parses protobuf's messages, because the parser gives no other details.
class Collector final : public google::protobuf::io::ErrorCollector {
 public:
  Collector(absl::string_view name, const std::string& text) : name_(name), places_(text) {}

  void AddError(int line, int column, const std::string& message) override {
    if (++count_ > kMaxListedProblems) return;
    const TextPlace& place = places_.Find({line, column});
    const Descriptor* descriptor = DescriptorAt(place.around);
    const std::vector<std::string> words = QuotedWords(message);
    std::vector<std::string> path = place.around;
    if (place.is_value_of_last_name) path.push_back(place.last_name);
    std::string hint;
    if (absl::StartsWith(message, "Unknown enumeration value") && words.size() == 2 &&
        descriptor != nullptr) {
      hint = EnumHint(*descriptor, words[1]);
    }
    Add({line, column}, path,
        absl::StrCat(Shortened(WithEndNamed(absl::StripSuffix(message, "."))), hint));
  }

  void AddWarning(int line, int column, const std::string& message) override {
    const std::vector<std::string> words = QuotedWords(message);
    if (words.size() != 2) return;
    // The schema has no extensions, so each of them is as unknown as a field that is misspelt.
    const bool is_extension = absl::StartsWith(message, "Ignoring extension");
    if (!is_extension && !absl::StrContains(message, "has no field named")) return;
    const std::string& name = words[is_extension ? 0 : 1];
    const Descriptor* descriptor =
        google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(
            words[is_extension ? 1 : 0]);
    if (descriptor == nullptr || descriptor == config::NotSupported::descriptor()) return;
    if (++count_ > kMaxListedProblems) return;
    // The parser reports the position after the name.
    const TextPlace& place = places_.Find({line, column});
    Add(place.last_name_begin, place.around,
        absl::StrCat("unknown ", is_extension ? "extension" : "field", " \"", Shortened(name),
                     "\" in ", descriptor->name(),
                     is_extension ? "" : DidYouMean(name, FieldNames(*descriptor))));
  }

  absl::Status status() const {
    if (count_ == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("cannot read the pipeline config:\n  ",
                                                   absl::StrJoin(lines_, "\n  "),
                                                   UnlistedProblems(count_)));
  }

 private:
  static std::string EnumHint(const Descriptor& descriptor, const std::string& field_name) {
    const FieldDescriptor* field = descriptor.FindFieldByName(field_name);
    if (field == nullptr || field->enum_type() == nullptr) return "";
    std::vector<std::string> values;
    for (int i = 0; i < field->enum_type()->value_count(); ++i)
      values.push_back(field->enum_type()->value(i)->name());
    return absl::StrCat("; expected one of ", absl::StrJoin(values, ", "));
  }

  void Add(TextPoint point, const std::vector<std::string>& around, const std::string& message) {
    const std::string where =
        around.empty() ? "" : absl::StrCat("in ", Shortened(absl::StrJoin(around, ".")), ": ");
    lines_.push_back(absl::StrCat(Location(name_, point), ": ", where, message));
  }

  const std::string name_;
  TextPlaceFinder places_;
  std::vector<std::string> lines_;  // one per problem, at most kMaxListedProblems
  int64_t count_ = 0;
};

// Sets every unset scalar field of the message, and of the messages in it, to its default, but not
// a field that means something else while it is unset. Clears the fields that are unsupported or
// have no effect.
void FillDefaults(google::protobuf::Message* message) {
  const google::protobuf::Reflection* reflection = message->GetReflection();
  const Descriptor* descriptor = message->GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (field->options().HasExtension(config::unsupported) ||
        field->options().HasExtension(config::no_effect)) {
      reflection->ClearField(message, field);
      continue;
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      for (int k = 0; field->is_repeated() && k < reflection->FieldSize(*message, field); ++k) {
        FillDefaults(reflection->MutableRepeatedMessage(message, field, k));
      }
      if (!field->is_repeated() && reflection->HasField(*message, field)) {
        FillDefaults(reflection->MutableMessage(message, field));
      }
      continue;
    }
    if (field->is_repeated() || field->containing_oneof() != nullptr ||
        field->options().GetExtension(config::unset_differs) ||
        reflection->HasField(*message, field)) {
      continue;
    }
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        reflection->SetInt32(message, field, field->default_value_int32());
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        reflection->SetUInt32(message, field, field->default_value_uint32());
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        reflection->SetUInt64(message, field, field->default_value_uint64());
        break;
      case FieldDescriptor::CPPTYPE_FLOAT:
        reflection->SetFloat(message, field, field->default_value_float());
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        reflection->SetBool(message, field, field->default_value_bool());
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        reflection->SetEnum(message, field, field->default_value_enum());
        break;
      default:  // the other fields are strings, where unset and empty mean the same
        break;
    }
  }
}

absl::Status CannotBeRead(const std::string& path, int error) {
  const std::string name = absl::StrCat("pipeline config ", path);
  if (error == ENOENT || error == ENOTDIR) {
    return absl::NotFoundError(
        absl::StrCat(name, ": no such file; examples are in deploy/pipelines"));
  }
  const std::string message = absl::StrCat(name, " cannot be read: ", std::strerror(error));
  if (IsPassingErrno(error)) return MarkPassing(absl::InternalError(message));
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(message);
  return absl::InvalidArgumentError(message);
}

// How long a pipe may have no writer.
constexpr int kWriterMilliseconds = 2000;

// Reads to the end, but at most `max_bytes`, because a device or a pipe may never end. `fd` does
// not block. Returns an errno, or 0.
int ReadUpTo(int fd, size_t max_bytes, std::string* text) {
  text->resize(max_bytes);
  size_t size = 0;
  bool waited = false;
  while (size < max_bytes) {
    const ssize_t count = ::read(fd, text->data() + size, max_bytes - size);
    if (count > 0) size += count;
    // A pipe without a writer seems to have ended, also if the writer is only about to open it.
    if (count == 0 && (size > 0 || waited)) break;
    if (count < 0 && errno != EINTR && errno != EAGAIN) return errno;
    pollfd input{fd, POLLIN, 0};
    if (count <= 0) ::poll(&input, 1, count == 0 ? kWriterMilliseconds : -1);
    waited = waited || count == 0;
  }
  text->resize(size);
  return 0;
}

}  // namespace

absl::StatusOr<config::TrainEvalPipelineConfig> ParsePipelineConfig(const std::string& bytes,
                                                                    absl::string_view name) {
  const std::string text(WithoutByteOrderMark(bytes));
  PP_RETURN_IF_ERROR(CheckLimits(text, name));
  config::TrainEvalPipelineConfig config;
  Collector collector(name, text);
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&collector);
  // The parser would stop at the first unknown field. As warnings it reports all of them, and the
  // collector turns them into errors.
  parser.AllowUnknownField(true);
  parser.SetRecursionLimit(kMaxNesting);
  google::protobuf::io::ArrayInputStream input(text.data(), static_cast<int>(text.size()));
  const bool parsed = parser.Parse(&input, &config);
  PP_RETURN_IF_ERROR(collector.status());
  if (!parsed)
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": not a pipeline config in protobuf text"));
  return config;
}

absl::StatusOr<config::TrainEvalPipelineConfig> LoadPipelineConfig(const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError("no pipeline config given; pass --pipeline_config_path=FILE");
  }
  // O_NONBLOCK keeps the opening of a pipe without a writer from blocking.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return CannotBeRead(path, errno);
  std::string text;
  const int error = ReadUpTo(fd, kMaxBytes + 1, &text);
  ::close(fd);
  if (error != 0) return CannotBeRead(path, error);
  if (text.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("pipeline config ", path,
                     " is empty, or a pipe that nobody writes to; expected protobuf text"));
  }
  return ParsePipelineConfig(text, path);
}

std::string EffectiveConfigText(const config::TrainEvalPipelineConfig& config) {
  config::TrainEvalPipelineConfig effective = config;
  effective.mutable_train_config();
  for (config::InputReader& reader : *effective.mutable_eval_input_reader()) {
    // An evaluation takes the examples in their order, although the schema's default is true.
    if (!reader.has_shuffle()) reader.set_shuffle(false);
  }
  if (!effective.model().has_external()) effective.mutable_eval_config();
  FillDefaults(&effective);
  if (config.model().has_external() && config.has_train_input_reader()) {
    // The programs of the clones read the data, so the other fields would be refused.
    *effective.mutable_train_input_reader() = config.train_input_reader();
  }
  std::string text;
  google::protobuf::TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  printer.PrintToString(effective, &text);
  return text;
}

}  // namespace pushpull

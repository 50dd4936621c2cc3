// Tested by tests/common/checkpoint/checkpoint_test.cc.
// Tested by tests/common/checkpoint/checkpoint_faults_test.cc.
#include "common/checkpoint/manifest.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"

#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_writer.h"

namespace pushpull {
namespace {

using nlohmann::json;

constexpr absl::string_view kDigestPrefix = "{\"manifest_sha256\":\"";
constexpr absl::string_view kDigestSuffix = "\",\n";
constexpr size_t kDigestChars = 64;
constexpr size_t kRunIdChars = 32;

bool IsHex(absl::string_view text, size_t size) {
  return text.size() == size && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

// Reads the fields of one JSON object and stores the first error in *error. After an error it reads
// nothing more.
class FieldReader {
 public:
  FieldReader(const json& object, std::string where, std::string* error)
      : object_(object), where_(std::move(where)), error_(error) {
    if (!object.is_object()) Fail("is not an object");
  }

  void Get(const char* name, std::string* out) {
    if (const json* value = Find(name); value != nullptr) {
      if (value->is_string()) {
        *out = value->get_ref<const std::string&>();
      } else {
        Fail(absl::StrCat(name, " is not a string"));
      }
    }
  }
  void Get(const char* name, bool* out) {
    if (const json* value = Find(name); value != nullptr) {
      if (value->is_boolean()) {
        *out = value->get<bool>();
      } else {
        Fail(absl::StrCat(name, " is not true or false"));
      }
    }
  }
  void Get(const char* name, double* out) {
    if (const json* value = Find(name); value != nullptr) {
      if (value->is_number()) {
        *out = value->get<double>();
      } else {
        Fail(absl::StrCat(name, " is not a number"));
      }
    }
  }
  void Get(const char* name, float* out) {
    double value = *out;
    Get(name, &value);
    *out = static_cast<float>(value);
  }
  template <typename T>
  void GetCount(const char* name, T* out) {
    if (const json* value = Find(name); value != nullptr) *out = Count<T>(*value, name);
  }
  void Get(const char* name, std::vector<std::string>* out) {
    ForEach(name, [&](const json& item, const std::string&) {
      if (!item.is_string()) return Fail(absl::StrCat(name, " holds something else than strings"));
      out->push_back(item.get<std::string>());
    });
  }
  // These leave *out unchanged if there is no such field.
  template <typename T>
  void GetOptionalCount(const char* name, T* out) {
    if (error_->empty() && object_.contains(name)) GetCount(name, out);
  }
  template <typename T>
  void GetOptional(const char* name, T* out) {
    if (error_->empty() && object_.contains(name)) Get(name, out);
  }
  void Get(const char* name, std::map<std::string, std::string>* out) {
    const json* value = Find(name);
    if (value == nullptr) return;
    if (!value->is_object()) return Fail(absl::StrCat(name, " is not an object"));
    for (const auto& [key, item] : value->items()) {
      if (!item.is_string()) return Fail(absl::StrCat(name, "[", key, "] is not a string"));
      (*out)[key] = item.get<std::string>();
    }
  }
  // Calls body(element, where) for each element of the list, where `where` is for messages.
  template <typename Body>
  void ForEach(const char* name, const Body& body) {
    const json* value = Find(name);
    if (value == nullptr) return;
    if (!value->is_array()) return Fail(absl::StrCat(name, " is not a list"));
    for (size_t i = 0; i < value->size() && error_->empty(); ++i) {
      body((*value)[i], absl::StrCat(where_, name, "[", i, "]"));
    }
  }
  const json* Find(const char* name) {
    if (!error_->empty()) return nullptr;
    const auto it = object_.find(name);
    if (it != object_.end()) return &*it;
    Fail(absl::StrCat(name, " is missing"));
    return nullptr;
  }
  template <typename T>
  T Count(const json& value, absl::string_view name) {
    if (value.is_number_unsigned() &&
        value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<T>::max())) {
      return static_cast<T>(value.get<uint64_t>());
    }
    Fail(absl::StrCat(name, " is not a count"));
    return 0;
  }
  void Fail(absl::string_view what) {
    if (error_->empty()) *error_ = absl::StrCat(where_, what);
  }

 private:
  const json& object_;
  std::string where_;
  std::string* error_;
};

void ReadVariables(FieldReader* fields, std::string* error, CheckpointManifest* manifest) {
  fields->ForEach("variables", [&](const json& item, const std::string& where) {
    FieldReader reader(item, absl::StrCat(where, "."), error);
    VariableSpec variable;
    reader.Get("name", &variable.name);
    bool moving_statistic = false;
    reader.Get("moving_statistic", &moving_statistic);
    variable.kind = moving_statistic ? VariableKind::kMovingStatistic : VariableKind::kTrainable;
    reader.ForEach("shape", [&](const json& dimension, const std::string&) {
      variable.shape.push_back(reader.Count<int64_t>(dimension, "shape"));
    });
    if (manifest->declared) {
      reader.Get("l2_weight", &variable.l2_weight);
      reader.Get("learning_rate_multiplier", &variable.learning_rate_multiplier);
      reader.Get("frozen", &variable.frozen);
      reader.Get("moving_average_decay", &variable.moving_average_decay);
    }
    manifest->variables.push_back(std::move(variable));
  });
}

void ReadFiles(FieldReader* fields, std::string* error, CheckpointManifest* manifest) {
  fields->ForEach("files", [&](const json& item, const std::string& where) {
    FieldReader reader(item, absl::StrCat(where, "."), error);
    CheckpointFile file;
    reader.Get("name", &file.name);
    reader.GetCount("size_bytes", &file.size_bytes);
    reader.Get("sha256", &file.sha256);
    if (!IsHex(file.sha256, kDigestChars)) reader.Fail("sha256 is not a digest");
    const json* tensors = reader.Find("tensor_crc32c");
    if (tensors != nullptr && !tensors->is_object()) reader.Fail("tensor_crc32c is not an object");
    if (error->empty()) {
      for (const auto& [name, crc] : tensors->items()) {
        file.tensors.push_back({name, reader.Count<uint32_t>(crc, name)});
      }
    }
    manifest->files.push_back(std::move(file));
  });
  for (size_t i = 0; i < manifest->files.size(); ++i) {
    const std::string expected =
        ShardFileName(static_cast<int>(i), static_cast<int>(manifest->files.size()));
    if (manifest->files[i].name != expected) {
      fields->Fail(
          absl::StrCat("file ", i, " is ", manifest->files[i].name, ", expected ", expected));
    }
  }
  if (manifest->files.empty()) fields->Fail("files is empty");
}

}  // namespace

void DescribeLayout(const VariableLayout& layout, CheckpointManifest* manifest) {
  manifest->layout_signature = layout.signature();
  manifest->variables.clear();
  for (const VariableSpec& variable : layout.variables()) {
    VariableSpec description;
    description.name = variable.name;
    description.shape = variable.shape;
    description.kind = variable.kind;
    manifest->variables.push_back(std::move(description));
  }
}

void DescribeDeclaredLayout(const VariableLayout& declared, CheckpointManifest* manifest) {
  DescribeLayout(declared, manifest);
  manifest->declared = true;
  for (size_t i = 0; i < manifest->variables.size(); ++i) {
    const VariableSpec& from = declared.variables()[i];
    VariableSpec& to = manifest->variables[i];
    to.l2_weight = from.l2_weight;
    to.learning_rate_multiplier = from.learning_rate_multiplier;
    to.frozen = from.frozen;
    to.moving_average_decay = from.moving_average_decay;
  }
}

std::string SerializeManifest(const CheckpointManifest& manifest) {
  json body = {
      {"format_version", CheckpointManifest::kFormatVersion},
      {"run_id", manifest.run_id},
      {"epoch", manifest.epoch},
      {"step", manifest.step},
      {"updates", manifest.updates},
      {"num_slots", manifest.num_replicas},
      {"seed", manifest.seed},
      {"mode", manifest.sync ? "sync" : "async"},
      {"training_done", manifest.training_done},
      {"run_started_unix", manifest.run_started_unix},
      {"saved_unix", manifest.saved_unix},
      {"layout_signature", manifest.layout_signature},
      {"slot_names", manifest.slot_names},
      {"has_ema", manifest.has_ema},
      {"ema_decay", manifest.ema_decay},
      {"pipeline_config", manifest.pipeline_config},
      {"optimizer_state", manifest.optimizer_state},
      {"schedule_state", manifest.schedule_state},
      {"async_state", manifest.async_state},
      {"variables", json::array()},
      {"files", json::array()},
  };
  if (manifest.last_step > 0) body["last_step"] = manifest.last_step;
  if (manifest.num_images > 0) body["num_images"] = manifest.num_images;
  if (!manifest.devices.empty()) body["devices"] = manifest.devices;
  if (manifest.declared) body["declared"] = true;
  for (const VariableSpec& variable : manifest.variables) {
    json item = {{"name", variable.name},
                 {"shape", variable.shape},
                 {"moving_statistic", variable.kind == VariableKind::kMovingStatistic}};
    if (manifest.declared) {
      item["l2_weight"] = variable.l2_weight;
      item["learning_rate_multiplier"] = variable.learning_rate_multiplier;
      item["frozen"] = variable.frozen;
      item["moving_average_decay"] = variable.moving_average_decay;
    }
    body["variables"].push_back(std::move(item));
  }
  for (const CheckpointFile& file : manifest.files) {
    json tensors = json::object();
    for (const CheckpointTensor& tensor : file.tensors) tensors[tensor.name] = tensor.crc32c;
    body["files"].push_back({{"name", file.name},
                             {"size_bytes", file.size_bytes},
                             {"sha256", file.sha256},
                             {"tensor_crc32c", std::move(tensors)}});
  }
  const std::string text = body.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
  const absl::string_view rest = absl::StripPrefix(text, "{\n");
  return absl::StrCat(kDigestPrefix, Sha256Hex(rest), kDigestSuffix, rest);
}

absl::StatusOr<CheckpointManifest> ParseManifest(absl::string_view text, absl::string_view path) {
  const auto bad = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(path, ": ", what));
  };
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, kDigestPrefix) || rest.size() < kDigestChars) {
    return bad("does not begin with the manifest's digest");
  }
  const absl::string_view digest = rest.substr(0, kDigestChars);
  rest.remove_prefix(kDigestChars);
  if (!absl::ConsumePrefix(&rest, kDigestSuffix)) {
    return bad("does not begin with the manifest's digest");
  }
  if (const std::string actual = Sha256Hex(rest); actual != digest) {
    return bad(absl::StrCat("SHA-256 is ", actual, ", expected ", digest));
  }
  const json body = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (body.is_discarded()) return bad("is not JSON");

  CheckpointManifest manifest;
  std::string error;
  FieldReader fields(body, "", &error);
  int version = 0;
  fields.GetCount("format_version", &version);
  if (error.empty() && version != CheckpointManifest::kFormatVersion) {
    fields.Fail(absl::StrCat("format_version is ", version, ", this program reads ",
                             CheckpointManifest::kFormatVersion));
  }
  std::string mode;
  fields.Get("run_id", &manifest.run_id);
  fields.GetCount("epoch", &manifest.epoch);
  fields.GetCount("step", &manifest.step);
  fields.GetCount("updates", &manifest.updates);
  fields.GetCount("num_slots", &manifest.num_replicas);
  fields.GetCount("seed", &manifest.seed);
  fields.Get("mode", &mode);
  fields.Get("training_done", &manifest.training_done);
  // Runs without these do not write them, and neither did earlier releases.
  fields.GetOptionalCount("last_step", &manifest.last_step);
  fields.GetOptionalCount("num_images", &manifest.num_images);
  fields.GetOptional("devices", &manifest.devices);
  fields.Get("run_started_unix", &manifest.run_started_unix);
  fields.Get("saved_unix", &manifest.saved_unix);
  fields.Get("layout_signature", &manifest.layout_signature);
  fields.Get("has_ema", &manifest.has_ema);
  fields.Get("ema_decay", &manifest.ema_decay);
  fields.Get("pipeline_config", &manifest.pipeline_config);
  fields.Get("optimizer_state", &manifest.optimizer_state);
  fields.Get("schedule_state", &manifest.schedule_state);
  fields.Get("async_state", &manifest.async_state);
  fields.Get("slot_names", &manifest.slot_names);
  fields.GetOptional("declared", &manifest.declared);
  ReadVariables(&fields, &error, &manifest);
  ReadFiles(&fields, &error, &manifest);
  if (!IsHex(manifest.run_id, kRunIdChars)) fields.Fail("run_id is not 32 hex digits");
  if (mode != "sync" && mode != "async") fields.Fail("mode is neither sync nor async");
  manifest.sync = mode == "sync";
  if (!error.empty()) return bad(error);
  return manifest;
}

absl::Status CheckLayout(const CheckpointManifest& manifest, const VariableLayout& layout) {
  if (manifest.layout_signature == layout.signature()) return absl::OkStatus();
  PP_ASSIGN_OR_RETURN(const VariableLayout stored, VariableLayout::Create(manifest.variables));
  const std::string difference = layout.DescribeDifference(stored);
  if (difference.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the checkpoint of step ", manifest.step, " is of another model (here: the ",
                   "configured one, there: the checkpoint): ", difference));
}

}  // namespace pushpull

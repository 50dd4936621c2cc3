#include "common/config/config_difference.h"

#include "google/protobuf/util/message_differencer.h"

namespace pushpull {

std::string DescribeConfigDifference(const google::protobuf::Message& before,
                                     const google::protobuf::Message& now, UnsetFields unset) {
  using google::protobuf::util::MessageDifferencer;
  std::string lines;
  MessageDifferencer differencer;
  if (unset == UnsetFields::kAreDefaults) {
    differencer.set_message_field_comparison(MessageDifferencer::EQUIVALENT);
  }
  differencer.ReportDifferencesToString(&lines);
  if (differencer.Compare(before, now)) return "";
  return lines.substr(0, lines.find('\n'));
}

}  // namespace pushpull

// Tested by tests/kernels/detection/detection_units_test.cc.
#include "kernels/detection/box_coder.h"

#include "kernels/detection/box_formulas.h"

namespace pushpull {

BoxCode EncodeBox(const FasterRcnnBoxCoderSpec& spec, const BoundingBox& box,
                  const BoundingBox& anchor) {
  BoxCode code;
  EncodeBoxInto(spec, box, anchor, code.data());
  return code;
}

BoundingBox DecodeBox(const FasterRcnnBoxCoderSpec& spec, const BoxCode& code,
                      const BoundingBox& anchor) {
  return DecodeBoxFrom(spec, code.data(), anchor);
}

}  // namespace pushpull

// The readers of external data. Each has a libFuzzer target in <name>_fuzz.cc.
#ifndef PUSHPULL_TESTS_FUZZ_TARGETS_H_
#define PUSHPULL_TESTS_FUZZ_TARGETS_H_

#define PUSHPULL_FUZZ_TARGETS(X) \
  X(coco_annotations)            \
  X(example_codec)               \
  X(idx)                         \
  X(image_codec)                 \
  X(label_map)                   \
  X(manifest)                    \
  X(pipeline_config)             \
  X(record_io)                   \
  X(safetensors)                 \
  X(sorted_table)                \
  X(tensor_bundle)               \
  X(voc_annotations)

#endif  // PUSHPULL_TESTS_FUZZ_TARGETS_H_

// Networks for the tests of the families, and what the tests ask about them.
#ifndef PUSHPULL_TESTS_COMMON_MODEL_FAMILIES_FAMILY_TESTING_H_
#define PUSHPULL_TESTS_COMMON_MODEL_FAMILIES_FAMILY_TESTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/network_builder.h"
#include "common/model/network_spec.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// A config for square images of `size` pixels.
config::Classifier MakeClassifier(const std::string& type, int size, double width = 1.0,
                                  int num_classes = 1000);
// Returns the network. Fails the test if CheckNetwork refuses it.
NetworkSpec BuildChecked(const config::Classifier& classifier);
// Does the same for MakeClassifier(type, size, width).
NetworkSpec BuildChecked(const std::string& type, int size = 224, double width = 1.0);
// Ends a body with the means of the map `last` as scores, and checks it in the same way.
NetworkSpec FinishBody(NetworkBuilder builder, int last);

int64_t CountParameters(const NetworkSpec& network);  // those that are trained
int64_t CountElements(const NetworkSpec& network);    // of all variables, with moving statistics
int CountActivations(const NetworkSpec& network, ActivationFunction function);
// Returns the shape of a variable; an empty one if the network has no such variable.
std::vector<int64_t> ShapeOf(const NetworkSpec& network, const std::string& name);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_COMMON_MODEL_FAMILIES_FAMILY_TESTING_H_

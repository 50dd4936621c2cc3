// Tested by tests/common/config/validate_config_test.cc.
#include "common/config/hyperparams_checks.h"

namespace pushpull {

void CheckInitializer(const config::WeightInitializer& initializer, const std::string& field,
                      FieldChecker* checker) {
  if (initializer.has_truncated_normal_initializer()) {
    checker->Positive(field + ".truncated_normal_initializer.stddev",
                      initializer.truncated_normal_initializer().stddev());
  } else if (initializer.has_random_normal_initializer()) {
    checker->Positive(field + ".random_normal_initializer.stddev",
                      initializer.random_normal_initializer().stddev());
  } else if (initializer.has_variance_scaling_initializer()) {
    checker->Positive(field + ".variance_scaling_initializer.factor",
                      initializer.variance_scaling_initializer().factor());
  }
}

void CheckHyperparams(const config::Hyperparams& hyperparams, const std::string& field,
                      BatchNormUse batch_norm, FieldChecker* checker) {
  if (hyperparams.regularizer().has_l2_regularizer()) {
    checker->NotNegative(field + ".regularizer.l2_regularizer.weight",
                         hyperparams.regularizer().l2_regularizer().weight());
  }
  CheckInitializer(hyperparams.initializer(), field + ".initializer", checker);
  if (hyperparams.has_batch_norm()) {
    checker->Fraction(field + ".batch_norm.decay", hyperparams.batch_norm().decay());
    checker->Positive(field + ".batch_norm.epsilon", hyperparams.batch_norm().epsilon());
  } else if (batch_norm == BatchNormUse::kRequired && !hyperparams.has_group_norm()) {
    checker->Missing(field + ".batch_norm", "batch_norm");
  }
}

}  // namespace pushpull

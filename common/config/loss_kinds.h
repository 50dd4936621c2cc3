// The list of all losses of model.ssd.loss, and the choice among them. Thread-safe.
#ifndef PUSHPULL_COMMON_CONFIG_LOSS_KINDS_H_
#define PUSHPULL_COMMON_CONFIG_LOSS_KINDS_H_

#include "protos/pipeline.pb.h"

namespace pushpull {

// Each function calls visit with the message of the loss that is set, or not at all if none is. A
// loss without a row does not compile, nor does a visitor that lacks a message. A loss that is not
// built has the message NotSupported.

template <typename Visit>
void VisitClassificationLoss(const config::ClassificationLoss& loss, const Visit& visit) {
  switch (loss.classification_loss_case()) {
    // clang-format off
#define PUSHPULL_ROW(Case, field) \
    case config::ClassificationLoss::Case: return visit(loss.field());
    PUSHPULL_ROW(kWeightedSigmoid, weighted_sigmoid)
    PUSHPULL_ROW(kWeightedSoftmax, weighted_softmax)
    PUSHPULL_ROW(kBootstrappedSigmoid, bootstrapped_sigmoid)
    PUSHPULL_ROW(kWeightedSigmoidFocal, weighted_sigmoid_focal)
    PUSHPULL_ROW(kWeightedLogitsSoftmax, weighted_logits_softmax)
    PUSHPULL_ROW(kPenaltyReducedLogisticFocalLoss, penalty_reduced_logistic_focal_loss)
    PUSHPULL_ROW(kWeightedDiceClassificationLoss, weighted_dice_classification_loss)
#undef PUSHPULL_ROW
    // clang-format on
    case config::ClassificationLoss::CLASSIFICATION_LOSS_NOT_SET:
      break;
  }
}

template <typename Visit>
void VisitLocalizationLoss(const config::LocalizationLoss& loss, const Visit& visit) {
  switch (loss.localization_loss_case()) {
    // clang-format off
#define PUSHPULL_ROW(Case, field) \
    case config::LocalizationLoss::Case: return visit(loss.field());
    PUSHPULL_ROW(kWeightedL2, weighted_l2)
    PUSHPULL_ROW(kWeightedSmoothL1, weighted_smooth_l1)
    PUSHPULL_ROW(kWeightedIou, weighted_iou)
    PUSHPULL_ROW(kL1LocalizationLoss, l1_localization_loss)
    PUSHPULL_ROW(kWeightedGiou, weighted_giou)
#undef PUSHPULL_ROW
    // clang-format on
    case config::LocalizationLoss::LOCALIZATION_LOSS_NOT_SET:
      break;
  }
}

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_LOSS_KINDS_H_
